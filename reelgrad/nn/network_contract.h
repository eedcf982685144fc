// For tests: what every network promises (network.h).
#pragma once
#include "reelgrad/nn/architectures.h"

namespace reelgrad::test {

// On a small network of this spec: segments() run in order are forward() bit for bit, in training and evaluation; the
// output has the size that info() says; it is the same in channels-last layout, trains in float64 and under bfloat16
// autocast, reaches as far as receptive_radius_px and no farther (unless it looks at the whole picture), and starts
// from the same weights with the same seed.
void expect_keeps_the_contract(const NetworkSpec& spec);

}  // namespace reelgrad::test
