#include "reelgrad/nn/state_shapes.h"

#include <algorithm>
#include <charconv>

namespace reelgrad {

StateShapes::StateShapes(const NamedTensors& state) {
  for (const auto& [name, tensor] : state) shapes_.emplace(name, tensor.sizes().vec());
}

const std::vector<std::int64_t>& StateShapes::shape(const std::string& key) const {
  static const std::vector<std::int64_t> none;
  const auto found = shapes_.find(key);
  return found == shapes_.end() ? none : found->second;
}

std::int64_t StateShapes::dim(const std::string& key, std::size_t dimension) const {
  const std::vector<std::int64_t>& sizes = shape(key);
  return dimension < sizes.size() ? sizes[dimension] : 0;
}

int StateShapes::count_after(std::string_view prefix) const {
  constexpr int kMost = 1'000'000;
  int count = 0;
  for (const auto& item : shapes_) {
    const std::string_view key = item.first;
    if (!key.starts_with(prefix)) continue;
    int number = 0;
    const char* end = key.data() + key.size();
    const auto [rest, error] = std::from_chars(key.data() + prefix.size(), end, number);
    if (error == std::errc() && rest != end && *rest == '.' && number >= 0 && number < kMost)
      count = std::max(count, number + 1);
  }
  return count;
}

}  // namespace reelgrad
