// For tests: what every network promises (network.h).
#pragma once
#include "reelgrad/nn/architectures.h"

namespace reelgrad::test {

// On a small network of this spec: segments() run in order are forward() bit for bit, in training and evaluation, and
// window_stages() within rounding; the output has the size that info() says; it is the same in channels-last layout,
// trains in float64 and under bfloat16 autocast, reaches as far as receptive_radius_px and no farther (unless it looks
// at the whole picture), and starts from the same weights with the same seed.
void expect_keeps_the_contract(const NetworkSpec& spec);

// What the two stages make of a window [N, T, C, H, W].
torch::Tensor through_stages(const WindowStages& stages, const torch::Tensor& window);

// The weights of a network of this spec, keys and shapes alone, are recognised as this spec, and by no other row of the
// table.
void expect_is_recognised(const NetworkSpec& spec);

// The same architecture, scale and colour, and the wanted one's options.
void expect_same_spec(const NetworkSpec& found, const NetworkSpec& wanted);

// With a channel behind its colour's that says sigma / 255 everywhere it gives what it gives without; with another
// level something else.
void expect_takes_a_noise_level(const NetworkSpec& spec, int sigma);

// Values that are trained, and all values of a file: parameters and buffers.
std::int64_t count_trained(const NetworkSpec& spec);
std::int64_t count_values(const NetworkSpec& spec);

}  // namespace reelgrad::test
