#include "reelgrad/nn/state_shapes.h"

#include <algorithm>
#include <charconv>

namespace reelgrad {

StateShapes::StateShapes(const NamedTensors& state) {
  for (const auto& [name, tensor] : state) {
    if (tensor.numel() > 0) shapes_.emplace(name, tensor.sizes().vec());
  }
}

const StateShapes::Shape& StateShapes::shape(const std::string& key) const {
  static const Shape none;
  const auto found = shapes_.find(key);
  return found == shapes_.end() ? none : found->second;
}

std::int64_t StateShapes::dim(const std::string& key, std::size_t dimension) const {
  const Shape& sizes = shape(key);
  return dimension < sizes.size() ? sizes[dimension] : 0;
}

std::int64_t StateShapes::outputs(const std::string& layer) const {
  const std::int64_t channels = dim(layer + ".weight", 0);
  return channels > 0 ? channels : dim(layer + ".bias", 0);
}

int StateShapes::count_after(std::string_view prefix) const {
  // Modules without tensors stand between those that have some, one or two.
  const int most = 3 * static_cast<int>(shapes_.size()) + 1;
  int count = 0;
  for (const auto& item : shapes_) {
    const std::string_view key = item.first;
    if (!key.starts_with(prefix)) continue;
    int number = 0;
    const char* end = key.data() + key.size();
    const auto [rest, error] = std::from_chars(key.data() + prefix.size(), end, number);
    if (error == std::errc() && rest != end && *rest == '.' && number >= 0 && number < most)
      count = std::max(count, number + 1);
  }
  return count;
}

std::size_t StateShapes::count_keys(std::string_view prefix) const {
  return std::ranges::count_if(shapes_, [&](const auto& item) { return item.first.starts_with(prefix); });
}

}  // namespace reelgrad
