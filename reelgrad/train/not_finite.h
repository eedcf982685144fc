#pragma once
#include <functional>
#include <string>
#include <vector>

#include "reelgrad/data/loader.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/loss.h"

namespace reelgrad {

// A step that gave values that are not finite, run once more to see where they begin.
struct StepUnderTest {
  Network& network;
  std::function<torch::Tensor(const Batch&)> network_input;    // as the network takes it
  std::function<void(const std::function<void()>&)> autocast;  // runs something as the forward pass is run
  std::function<LossValue(const Batch&)> loss;
  std::vector<std::string> loss_names;
  std::function<torch::Tensor(const torch::Tensor&)> scaled;  // the loss for backward
};

// The first tensor on the way from the input to the gradients with a value that is not finite, in words: "the input of
// sample 3", "the output of part 4 of 18 of the network", "the loss term ssim", "the gradient of body.3.weight (its
// loss scaled by 65536)". Empty: all are finite this time. Leaves gradients behind.
std::string first_not_finite(const StepUnderTest& step, const Batch& batch, int first_sample);

}  // namespace reelgrad
