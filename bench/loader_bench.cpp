// What the frame path costs a training run: steps on decoded crops against the same steps on one batch that lies on the
// card.
//   loader_bench SCRIPT.vpy [steps] [batch] [crop_px]
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace {

struct NothingRecorded : Recorder {
  void step(const StepRecord&) override {}
  void validation(const ValidationRecord&) override {}
  void checkpoint(const Snapshot&) override {}
};

struct SameBatch : BatchSource {
  explicit SameBatch(Batch given) : batch(std::move(given)) {}
  Batch next(std::int64_t, int, int) override { return batch; }
  Batch batch;
};

Config benchmark_config(const char* script, int steps, int batch, int crop_px) {
  Config config;
  config.run.steps = steps;
  config.data.script = {ScriptConfig{.path = script}};
  config.data.batch = batch;
  config.data.crop_px = crop_px;
  config.model.options = {{"features", "64"}, {"convs", "16"}, {"activation", "prelu"}};
  return config;
}

// Steps a second, the first tenth left out.
double rate(const Config& config, torch::Device device, BatchSource& batches) {
  NothingRecorded recorder;
  Trainer trainer(config, make_network(network_spec(config)), device, batches, recorder, nullptr);
  trainer.run(config.run.steps / 10);
  torch::cuda::synchronize();
  const auto begin = std::chrono::steady_clock::now();
  trainer.run();
  torch::cuda::synchronize();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return static_cast<double>(config.run.steps - config.run.steps / 10) / seconds;
}

void compare(const Config& config) {
  const torch::Device device(torch::kCUDA, 0);
  LoaderOptions options;
  options.layout = torch::MemoryFormat::ChannelsLast;
  const auto loader = [&] {
    return TrainingLoader(
        open_training_clips(config, [](const ScriptConfig& script) { return Script::open(script.path); }), config,
        device, 0, options);
  };
  SameBatch same(TrainingLoader(loader()).next(0, 0, config.data.batch));
  std::vector<double> ratios;
  for (int round = 0; round < 5; ++round) {
    const double fixed = rate(config, device, same);
    TrainingLoader decoded = loader();
    const double real = rate(config, device, decoded);
    ratios.push_back(real / fixed);
    fmt::print("batch {} crop {}: one batch {:.1f} it/s, decoded {:.1f} it/s, ratio {:.3f}\n", config.data.batch,
               config.data.crop_px, fixed, real, ratios.back());
  }
  std::ranges::sort(ratios);
  fmt::print("median ratio {:.3f}\n", ratios[2]);
}

}  // namespace
}  // namespace reelgrad

int main(int argc, char** argv) {
  if (argc < 2 || !torch::cuda::is_available()) {
    fmt::print(stderr, "usage: loader_bench SCRIPT.vpy [steps] [batch] [crop_px], on a machine with a CUDA card\n");
    return 1;
  }
  const auto number = [&](int at, int standard) { return argc > at ? std::atoi(argv[at]) : standard; };
  reelgrad::compare(reelgrad::benchmark_config(argv[1], number(2, 1500), number(3, 16), number(4, 64)));
}
