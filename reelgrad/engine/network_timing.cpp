// How long a step of training and a restored picture take, by the same means as `train` and `apply` have: a fitted
// step, captured where it can be, and a picture's forward pass as a CUDA graph.
#include "reelgrad/engine/network_timing.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "reelgrad/base/log.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/torch_file.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/captured_work.h"
#include "reelgrad/train/fitted_steps.h"
#include "reelgrad/train/meter.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/out_of_memory.h"
#include "reelgrad/train/step.h"
#include "reelgrad/train/trainer.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCardWarmUps = 5;  // libraries choose their kernels, and the step is captured
constexpr double kMostTimedRuns = 5000;

// People's work on a card; on the CPU something that ends.
TimingResult measured_sizes(torch::Device device, bool quick) {
  if (device.is_cuda()) {
    return {.batch = 16, .crop_px = 64, .width = 1920, .height = 1080, .least_seconds = quick ? 0.3 : 1.5};
  }
  if (quick) return {.batch = 1, .crop_px = 32, .width = 64, .height = 32, .least_seconds = 0};
  return {.batch = 2, .crop_px = 32, .width = 96, .height = 64, .least_seconds = 1};
}

int up_to_multiple(int side, int multiple) {
  return (side + multiple - 1) / multiple * multiple;
}

// A stream of its own, since the default one cannot be captured; nothing on the CPU.
class TimedStream {
 public:
  explicit TimedStream(torch::Device device) {
    if (!device.is_cuda()) return;
    device_.set_device(device);
    stream_.emplace(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
  }

 private:
  c10::cuda::OptionalCUDAGuard device_;
  std::optional<c10::cuda::CUDAStreamGuard> stream_;
};

// Seconds of one run, by the clock from before the first to after the last.
double mean_seconds(torch::Device device, double least_seconds, const std::function<void()>& work) {
  const auto finish = [&] {
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  };
  const auto timed = [&](int runs) {
    finish();
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) work();
    finish();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (int i = 0; i < (device.is_cuda() ? kCardWarmUps : 1); ++i) work();
  const double once = std::max(timed(1), 1e-6);
  const int runs = static_cast<int>(std::clamp(least_seconds / once, 1.0, kMostTimedRuns));
  return timed(runs) / runs;
}

// The same batch again and again.
class OneBatch : public BatchSource {
 public:
  explicit OneBatch(Batch batch) : batch_(std::move(batch)) {}
  Batch next(std::int64_t, int first, int count) override {
    return {batch_.input.narrow(0, first, count), batch_.target.narrow(0, first, count)};
  }

 private:
  Batch batch_;
};

std::shared_ptr<Network> fresh_network(const NetworkSpec& spec) {
  torch::manual_seed(1);
  return make_network(spec);
}

// [N, (T,) C, H, W]
torch::Tensor random_pictures(const NetworkInfo& info, int count, int height, int width, torch::Device device) {
  std::vector<std::int64_t> shape{count, info.in_channels, height, width};
  if (info.window > 1) shape.insert(shape.begin() + 1, info.window);
  return torch::rand(shape, device);
}

Config training_config(const NetworkSpec& spec, const TimingResult& sizes) {
  Config config;
  config.run.steps = 1'000'000;
  config.data.batch = sizes.batch;
  config.data.crop_px = sizes.crop_px;
  config.data.window = spec.window;
  config.model = {.arch = spec.arch, .scale = spec.scale, .options = spec.options};
  config.loss = {.l1 = 1, .charbonnier = 0};
  return config;
}

void time_step(const NetworkSpec& spec, torch::Device device, TimingResult& result) {
  const Config config = training_config(spec, result);
  const std::shared_ptr<Network> network = fresh_network(spec);
  network->to(device);
  if (prefers_channels_last(device)) to_channels_last(*network);
  network->train();
  const NetworkInfo info = network->info();
  const int crop = result.crop_px, target = crop * info.scale;
  OneBatch batches({random_pictures(info, config.data.batch, crop, crop, device),
                    torch::rand({config.data.batch, info.out_channels, target, target}, device)});
  const Precision precision = resolve_precision(device.is_cuda() ? "fp16" : "off", device);
  Updater updater({.optimizer = config.optimizer,
                   .schedule = config.schedule,
                   .ema = config.ema,
                   .steps = config.run.steps,
                   .loss_scaling = precision == Precision::fp16},
                  *network);
  NetworkLoss loss(config, *network, precision);
  LossMeter meter(1 + std::ssize(loss.names()), device);
  StepOps ops({{whole_backward([&](const Batch& batch) { return loss(batch); }), network.get(), &updater, &meter}},
              config.data.batch);
  FittedSteps steps(config, *network, loss, ops, batches, device);
  std::int64_t step = 0;
  result.step_seconds = mean_seconds(device, result.least_seconds, [&] { steps.run(step++); });
  result.step_captured = steps.replay_seconds(1).has_value();
}

void time_picture(const NetworkSpec& spec, torch::Device device, TimingResult& result) {
  const torch::NoGradGuard no_grad;
  const torch::ScalarType type = device.is_cuda() ? torch::kHalf : torch::kFloat;
  const std::shared_ptr<Network> network = fresh_network(spec);
  network->to(device, type);
  network->eval();
  to_channels_last(*network);
  torch::Tensor input = random_pictures(network->info(), 1, result.height, result.width, device).to(type);
  if (input.dim() == 4) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  torch::Tensor output;
  const auto forward = [&] { output = network->forward(input); };
  std::unique_ptr<CapturedWork> captured;
  if (device.is_cuda()) {
    for (int i = 0; i < kCardWarmUps; ++i) forward();
    output.reset();
    try {
      captured = std::make_unique<CapturedWork>(at::cuda::graph_pool_handle(), forward);
    } catch (const std::exception& error) {
      log::info(
          fmt::format("{}: pictures are restored op by op, not as a CUDA graph: {}", spec.arch, first_line(error)));
    }
  }
  result.picture_captured = captured != nullptr;
  result.picture_seconds = mean_seconds(device, result.least_seconds, [&] {
    if (captured) return captured->replay();
    forward();
  });
}

// As they start, under the community's keys and without our metadata.
void write_start(const NetworkSpec& spec, const std::filesystem::path& file) {
  const std::shared_ptr<Network> network = fresh_network(spec);
  network->eval();  // what follows from the weights
  write_torch_file(file, state_dict(*network));
}

// The card is to be as empty for what is measured next.
struct CardCacheGuard {
  torch::Device device;
  ~CardCacheGuard() {
    if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
  }
};

}  // namespace

TimingResult time_network(const TimingRequest& request) {
  const torch::Device device = resolve_device(request.device);
  apply_determinism(false);
  apply_tf32(true);
  NetworkSpec spec{.arch = request.arch, .scale = request.scale, .options = request.options};
  spec.window = find_architecture(request.arch)->window;
  TimingResult result = measured_sizes(device, request.quick);
  const NetworkInfo info = fresh_network(spec)->info();
  for (int* side : {&result.crop_px, &result.width, &result.height}) *side = up_to_multiple(*side, info.size_multiple);
  result.device = device.str();
  result.precision = device.is_cuda() ? "fp16" : "fp32";
  result.channels = info.in_channels + (info.noise_level ? 1 : 0);
  result.window = info.window;
  if (!request.weights.empty()) write_start(spec, request.weights);
  const CardCacheGuard cache{device};
  const TimedStream stream(device);
  time_step(spec, device, result);
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
  time_picture(spec, device, result);
  return result;
}

}  // namespace reelgrad
