// A training loop of your own over a VapourSynth script: FrameLoader decodes, crops and converts, the rest is plain
// LibTorch.
//   loader_example SCRIPT.vpy [NAME=VALUE]...
// SCRIPT: output 0 is the target, output 1 the input of half its size; NAME=VALUE are variables set in it.
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <string>

#include "reelgrad/frames/loader.h"

namespace {

// Learns what repeating each pixel twice leaves out.
struct SmallNetwork : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor detail = torch::pixel_shuffle(last->forward(torch::relu(first->forward(input))), 2);
    return detail + input.repeat_interleave(2, 2).repeat_interleave(2, 3);
  }

  torch::nn::Conv2d first{register_module("first", conv(3, 24))};
  torch::nn::Conv2d last{register_module("last", conv(24, 3 * 2 * 2))};

 private:
  static torch::nn::Conv2d conv(int from, int to) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1));
  }
};

reelgrad::FrameLoaderOptions options_of(int argc, char** argv) {
  reelgrad::FrameLoaderOptions options;
  options.script = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = argument.find('=');
    if (equals != std::string::npos) options.args[argument.substr(0, equals)] = argument.substr(equals + 1);
  }
  options.batch = 8;
  options.crop_px = 24;
  options.pool_frames = 32;
  if (torch::cuda::is_available()) options.device = torch::kCUDA;
  return options;
}

void train(const reelgrad::FrameLoaderOptions& options) {
  torch::manual_seed(1);
  reelgrad::FrameLoader loader(options);
  std::printf("%s\n", loader.describe().c_str());

  SmallNetwork network;
  network.to(options.device);
  torch::optim::Adam optimizer(network.parameters(), torch::optim::AdamOptions(2e-3));
  constexpr int kSteps = 150, kReported = 30;
  torch::Tensor sum = torch::zeros({}, options.device);
  for (int step = 1; step <= kSteps; ++step) {
    const reelgrad::FrameBatch batch = loader.next();
    const torch::Tensor loss = torch::l1_loss(network.forward(batch.input), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    sum += loss.detach();
    if (step % kReported != 0) continue;
    std::printf("step %d: loss %.5f\n", step, sum.item<float>() / kReported);
    sum.zero_();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: loader_example SCRIPT.vpy [NAME=VALUE]...\n");
    return 2;
  }
  try {
    train(options_of(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
