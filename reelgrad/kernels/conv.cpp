#include "reelgrad/kernels/conv.h"

namespace reelgrad {

ConvWeights backward_weights(const ConvWeights& forward, const ConvVector& below) {
  constexpr std::int64_t kLastTap = 8;
  const auto* bytes = static_cast<const std::byte*>(forward.weight);
  ConvWeights back = forward;
  back.weight = bytes + kLastTap * forward.tap_step * static_cast<std::int64_t>(element_bytes(forward.element));
  back.tap_step = -forward.tap_step;
  back.out = forward.in;
  back.in = forward.out;
  back.out_step = forward.in_step;
  back.in_step = forward.out_step;
  back.bias = {};
  back.slope = below;
  return back;
}

}  // namespace reelgrad
