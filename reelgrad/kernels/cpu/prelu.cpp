#include "reelgrad/kernels/prelu.h"

#include <algorithm>

namespace reelgrad::cpu {

void prelu(float* values, std::int64_t pixels, std::span<const float> slopes) {
  const std::int64_t channels = std::ssize(slopes);
  const float* const by = slopes.data();
  float* const end = values + pixels * channels;
  for (float* pixel = values; pixel < end; pixel += channels) {
    for (std::int64_t i = 0; i < channels; ++i) pixel[i] = std::max(pixel[i], 0.0F) + by[i] * std::min(pixel[i], 0.0F);
  }
}

}  // namespace reelgrad::cpu
