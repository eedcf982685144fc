// The shapes of a file's tensors by their keys: what a network is recognised by.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reelgrad/nn/weights.h"

namespace reelgrad {

class StateShapes {
 public:
  explicit StateShapes(const NamedTensors& state);

  std::size_t size() const { return shapes_.size(); }
  bool has(const std::string& key) const { return shapes_.contains(key); }

  // Of a key that need not be there: empty then, and for a scalar.
  const std::vector<std::int64_t>& shape(const std::string& key) const;

  // 0 when the key is missing or has fewer dimensions.
  std::int64_t dim(const std::string& key, std::size_t dimension) const;

  // One more than the largest number that follows `prefix` in a key and ends at a dot: with "body." and body.0.weight,
  // body.2.bias, 3. 0: none.
  int count_after(std::string_view prefix) const;

 private:
  std::map<std::string, std::vector<std::int64_t>> shapes_;
};

}  // namespace reelgrad
