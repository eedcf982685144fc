#pragma once
#include <cstdint>
#include <span>

namespace reelgrad::cpu {

// v > 0 ? v : slope * v in place, of float32 pixels whose channels lie together, one slope a channel.
void prelu(float* values, std::int64_t pixels, std::span<const float> slopes);

}  // namespace reelgrad::cpu
