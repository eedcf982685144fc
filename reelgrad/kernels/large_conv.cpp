#include "reelgrad/kernels/large_conv.h"

namespace reelgrad {

LargeWeights backward_weights(const LargeWeights& forward) {
  constexpr std::int64_t kLastTap = kLargeTaps - 1;
  const auto* bytes = static_cast<const std::byte*>(forward.data);
  return {.data = bytes + kLastTap * forward.tap_step * static_cast<std::int64_t>(element_bytes(forward.element)),
          .element = forward.element,
          .out_step = forward.in_step,
          .in_step = forward.out_step,
          .tap_step = -forward.tap_step,
          .bias = {}};
}

}  // namespace reelgrad
