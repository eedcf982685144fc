#pragma once
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reelgrad/nn/weights.h"

namespace reelgrad {

// Exponential moving average of a network's parameters: average += (1 - decay) (parameter - average) an update, started
// from the parameters as they are. Kept apart from them.
class Ema {
 public:
  Ema(double decay, const torch::nn::Module& network);

  // `found_inf` as for Optimizer::step: 1 leaves the average as it is.
  void update(const std::optional<torch::Tensor>& found_inf = std::nullopt);

  // Under the network's own keys: the averages, and the network's buffers. Shares storage.
  NamedTensors state() const;
  void load_state(const NamedTensors& state);

  // The network's parameters are the averages while this lives. The raw tensors are set aside, not copied: nothing can
  // change them meanwhile.
  class SwappedIn {
   public:
    explicit SwappedIn(const Ema& ema);
    SwappedIn(const SwappedIn&) = delete;
    SwappedIn& operator=(const SwappedIn&) = delete;
    ~SwappedIn();

   private:
    const Ema& ema_;
    std::vector<torch::Tensor> raw_;
  };

 private:
  double decay_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_, averages_;
  NamedTensors buffers_;
};

}  // namespace reelgrad
