// How much work a network does.
#pragma once
#include <cstdint>
#include <functional>

#include "reelgrad/nn/network.h"

namespace reelgrad {

struct NetworkCost {
  std::int64_t parameters = 0;       // trained ones
  double flops_per_input_pixel = 0;  // of convolutions and matrix products, a multiplication and an addition as two
};

// Of what this thread asks of torch in `work`.
double count_flops(const std::function<void()>& work);

// Runs the network once, on the CPU, in evaluation mode, on a picture of about 64 x 64; the network must be there.
NetworkCost measure_cost(Network& network);

}  // namespace reelgrad
