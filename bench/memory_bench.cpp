// What gradient checkpointing and offloading cost and save: peak memory of a step's tensors, and its time, for Compact
// networks of several depths. Prints a table in Markdown.
//   memory_bench [--convs 16,64,256] [--features 64] [--batch 16] [--crop 128] [--scale 2] [--segments N] [--steps 10]
//                [--quick]
// A step is forward, L1 and backward, on a card in bf16 and channels_last. --segments 0: as many as "on" takes.
// --quick: sizes that a CPU runs in seconds. Memory is that beyond weights, gradients, input and target, which are
// there before.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/checkpointing.h"
#include "reelgrad/train/peak_memory.h"

namespace reelgrad {
namespace {

struct Options {
  std::vector<int> convs{16, 64, 256};
  int features = 64, batch = 16, crop_px = 128, scale = 2, segments = 0, steps = 10;
};

int parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    fail_usage(fmt::format("memory_bench: \"{}\" is no number", text));
  }
  return value;
}

std::vector<int> parse_list(std::string_view text) {
  std::vector<int> list;
  while (true) {
    const std::size_t comma = text.find(',');
    list.push_back(parse_int(text.substr(0, comma)));
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

Options parse(const std::vector<std::string_view>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--quick") {
      options = {.convs = {8, 32}, .features = 16, .batch = 2, .crop_px = 48, .steps = 3};
      continue;
    }
    if (i + 1 == words.size()) fail_usage(fmt::format("memory_bench: {}: a value is missing", words[i]));
    const std::string_view name = words[i], value = words[++i];
    if (name == "--convs")
      options.convs = parse_list(value);
    else if (name == "--features")
      options.features = parse_int(value);
    else if (name == "--batch")
      options.batch = parse_int(value);
    else if (name == "--crop")
      options.crop_px = parse_int(value);
    else if (name == "--scale")
      options.scale = parse_int(value);
    else if (name == "--segments")
      options.segments = parse_int(value);
    else if (name == "--steps")
      options.steps = parse_int(value);
    else
      fail_usage(fmt::format("memory_bench: unknown option {}", name));
  }
  return options;
}

torch::Device best_device() {
  return torch::cuda::is_available() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

struct Measured {
  double peak_mib, step_ms;
};

// The network and batch of one depth.
class Workload {
 public:
  Workload(const Options& options, int convs)
      : device_(best_device()),
        precision_(device_.is_cuda() ? Precision::bf16 : Precision::fp32),
        steps_(options.steps),
        network_(make_network(
            {.scale = options.scale,
             .options = {{"features", std::to_string(options.features)}, {"convs", std::to_string(convs)}}})) {
    network_->to(device_);
    for (torch::Tensor& parameter : network_->parameters()) {
      if (device_.is_cuda() && parameter.dim() == 4) parameter.set_data(parameter.contiguous(layout()));
      parameter.mutable_grad() = torch::zeros_like(parameter);
    }
    const int target_px = options.crop_px * options.scale;
    input_ = torch::rand({options.batch, 3, options.crop_px, options.crop_px}, device_).contiguous(layout());
    target_ = torch::rand({options.batch, 3, target_px, target_px}, device_).contiguous(layout());
  }

  int automatic_segments(bool offload) const { return reelgrad::automatic_segments(*network_, offload); }

  Measured measure(const CheckpointPlan& plan) const {
    for (int i = 0; i < 3; ++i) step(plan);
    synchronize();
    const PeakMemory peak(device_);
    std::vector<double> times;
    for (int i = 0; i < steps_; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      step(plan);
      synchronize();
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::ranges::sort(times);
    return {static_cast<double>(peak.bytes()) / (1 << 20), times[times.size() / 2]};
  }

 private:
  static torch::MemoryFormat layout() {
    return best_device().is_cuda() ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
  }

  void step(const CheckpointPlan& plan) const {
    torch::Tensor prediction;
    {
      const AutocastGuard autocast(device_, precision_);
      prediction = forward_checkpointed(*network_, input_, plan);
    }
    at::l1_loss(prediction.to(torch::kFloat32), target_).backward();
  }

  void synchronize() const {
    if (device_.is_cuda()) torch::cuda::synchronize();
  }

  torch::Device device_;
  Precision precision_;
  int steps_;
  std::shared_ptr<Network> network_;
  torch::Tensor input_, target_;
};

void print_depth(const Options& options, int convs) {
  const Workload workload(options, convs);
  const Measured off = workload.measure({});
  const auto row = [&](std::string_view name, const Measured& measured) {
    fmt::print("| {} | {} | {:.0f} MiB | {:.1f} % | {:.2f} ms | {:.2f} |\n", convs, name, measured.peak_mib,
               100 * measured.peak_mib / off.peak_mib, measured.step_ms, measured.step_ms / off.step_ms);
  };
  row("off", off);
  for (const bool offload : {false, true}) {
    const int segments = options.segments > 0 ? options.segments : workload.automatic_segments(offload);
    row(fmt::format("on, {} segments{}", segments, offload ? ", offload" : ""),
        workload.measure({.segments = segments, .offload = offload}));
  }
}

void print_table(const Options& options) {
  at::globalContext().setBenchmarkCuDNN(true);
  fmt::print("{} features, batch {}, crop {}, x{}, on {}\n\n", options.features, options.batch, options.crop_px,
             options.scale, best_device().str());
  fmt::print("| convolutions | checkpointing | peak memory | of off | step | times off |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  for (const int convs : options.convs) print_depth(options, convs);
}

}  // namespace
}  // namespace reelgrad

int main(int argc, char** argv) {
  try {
    reelgrad::print_table(reelgrad::parse({argv + 1, argv + argc}));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
