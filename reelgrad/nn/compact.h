// Compact, known as SRVGGNetCompact: convolutions at input size, then one pixel shuffle, added to the repeated input.
// Source: "Real-ESRGAN: Training Real-World Blind Super-Resolution with Pure Synthetic Data" (Wang et al., 2021) and
// the key layout in which its weights are exchanged: body.0 convolution, body.1 activation, …, body.{2n+2} convolution.
#pragma once
#include <torch/nn/modules/container/modulelist.h>

#include <memory>
#include <optional>
#include <vector>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/conv_act.h"
#include "reelgrad/nn/network.h"

namespace reelgrad {

struct CompactOptions {
  int channels = 3;  // in and out
  int features = 64;
  int convs = 16;  // between the first and the last
  int scale = 2;
  Activation activation = Activation::prelu;
};

class Compact : public Network {
 public:
  explicit Compact(const CompactOptions& options);

  torch::Tensor forward(torch::Tensor input) override;
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override;  // one a convolution; the input passes along to the last

 private:
  struct Layer {
    torch::Tensor weight, bias, slope;  // slope undefined but for prelu
  };
  Layer layer(std::size_t index) const;
  torch::Tensor run_layer(std::size_t index, const torch::Tensor& x) const;
  torch::Tensor assemble(const torch::Tensor& subpixels, const torch::Tensor& input) const;

  CompactOptions options_;
  torch::nn::ModuleList body_;
};

// Row of the architecture table.
std::shared_ptr<Network> make_compact(const NetworkSpec& spec);

// Only files with PReLU are recognised: without parameters of their own, ReLU and leaky ReLU cannot be told apart.
std::optional<NetworkSpec> detect_compact(const NamedTensors& state);

}  // namespace reelgrad
