// The shapes of a file's tensors by their keys: what a network is recognised by.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reelgrad/nn/weights.h"

namespace reelgrad {

// Tensors without values are left out, so that a size that a shape tells of is there.
class StateShapes {
 public:
  using Shape = std::vector<std::int64_t>;

  explicit StateShapes(const NamedTensors& state);

  const std::map<std::string, Shape>& all() const { return shapes_; }
  bool has(const std::string& key) const { return shapes_.contains(key); }

  // Of a key that need not be there: empty then, and for a scalar.
  const Shape& shape(const std::string& key) const;

  // 0 when the key is missing or has fewer dimensions.
  std::int64_t dim(const std::string& key, std::size_t dimension) const;

  // Of a convolution or a linear layer, by its key without ".weight": its channels. What comes out is told by its bias
  // as well. 0: by none of them.
  std::int64_t inputs(const std::string& layer) const { return dim(layer + ".weight", 1); }
  std::int64_t outputs(const std::string& layer) const;

  // One more than the largest number that follows `prefix` in a key and ends at a dot: with "body." and body.0.weight,
  // body.2.bias, 3. 0: none. Numbers that so few tensors cannot have are left out.
  int count_after(std::string_view prefix) const;

  std::size_t count_keys(std::string_view prefix) const;  // that begin so

 private:
  std::map<std::string, Shape> shapes_;
};

}  // namespace reelgrad
