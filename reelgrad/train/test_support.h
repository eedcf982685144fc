// What the trainer's tests share: batches, a recorder and a validator in memory.
#pragma once
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/meter.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/snapshot_state.h"
#include "reelgrad/train/step.h"
#include "reelgrad/train/trainer.h"
#include "reelgrad/train/updater.h"

namespace reelgrad::test {

// A few fixed batches in turn: sample i of step s is number (s * samples_a_step + i) modulo their count. Takes no
// memory where they follow one another.
class FixedBatches : public BatchSource {
 public:
  FixedBatches(torch::Tensor inputs, torch::Tensor targets, int samples_a_step)
      : inputs_(std::move(inputs)), targets_(std::move(targets)), samples_a_step_(samples_a_step) {}

  Batch next(std::int64_t step, int first, int count) override {
    const std::int64_t start = (step * samples_a_step_ + first) % inputs_.size(0);
    if (start + count <= inputs_.size(0)) return {inputs_.narrow(0, start, count), targets_.narrow(0, start, count)};
    std::vector<std::int64_t> picked;
    for (int i = 0; i < count; ++i) picked.push_back((start + i) % inputs_.size(0));
    const torch::Tensor index = torch::tensor(picked, torch::kInt64).to(inputs_.device());
    return {inputs_.index_select(0, index), targets_.index_select(0, index)};
  }

 private:
  torch::Tensor inputs_, targets_;
  int samples_a_step_;
};

// Smooth pictures, so that there is something to learn.
inline FixedBatches smooth_batches(const Config& config, torch::Device device = torch::kCPU, int count = 24) {
  const torch::Tensor targets =
      at::upsample_bilinear2d(torch::rand({count, 3, 4, 4}, at::detail::createCPUGenerator(5)), {16, 16}, false);
  return {at::avg_pool2d(targets, 2).to(device), targets.to(device), config.data.batch * config.optimizer.accumulate};
}

struct MemoryRecorder : Recorder {
  std::vector<StepRecord> steps;
  std::vector<ValidationRecord> validations;
  std::vector<Snapshot> checkpoints;
  std::vector<std::string> events;  // "record 4", "validation 4", "checkpoint 4" in the order they came

  void step(const StepRecord& record) override {
    steps.push_back(record);
    events.push_back("record " + std::to_string(record.step));
  }
  void validation(const ValidationRecord& record) override {
    validations.push_back(record);
    events.push_back("validation " + std::to_string(record.step));
  }
  void checkpoint(const Snapshot& snapshot) override {
    checkpoints.push_back(snapshot);
    events.push_back("checkpoint " + std::to_string(snapshot.step));
  }
};

// Scores the network by its output on one picture; remembers the weights it saw.
struct PictureValidator : Validator {
  std::vector<NamedTensors> seen;

  std::optional<ValidationRecord> validate(Network& network, std::int64_t step, const std::function<bool()>&) override {
    const torch::NoGradGuard no_grad;
    seen.emplace_back();
    for (const auto& [name, tensor] : state_dict(network)) seen.back().emplace_back(name, tensor.clone());
    network.eval();
    const auto options = network.parameters().front().options().requires_grad(false);
    const double error =
        (network.forward(torch::full({1, 3, 8, 8}, 0.25, options)) - 0.25).square().mean().item<double>();
    network.train();
    ValidationRecord record{.step = step, .frames = 1};
    record.ours.psnr_rgb = -error;
    return record;
  }
};

inline Config small_config() {
  Config config;
  config.run.steps = 12;
  config.run.log_every = 4;
  config.data.batch = 2;
  config.data.crop_px = 8;
  config.model.options = {{"features", "4"}, {"convs", "1"}, {"activation", "prelu"}};
  config.optimizer.lr = 1e-3;
  config.precision.amp = "off";
  config.validation.every = 1000;
  config.checkpoint.every = 1000;
  return config;
}

inline std::shared_ptr<Network> small_network(std::uint64_t seed, torch::ScalarType type = torch::kFloat32) {
  torch::manual_seed(seed);
  auto network = make_network(network_spec(small_config()));
  network->to(type);
  return network;
}

// A network with all that a step needs but its batches.
struct StepSetup {
  StepSetup(const Config& configuration, std::shared_ptr<Network> made, torch::Device device,
            Precision precision = Precision::fp32, double initial_scale = 65536)
      : config(configuration),
        network(std::move(made)),
        updater({.optimizer = config.optimizer,
                 .schedule = config.schedule,
                 .ema = config.ema,
                 .steps = config.run.steps,
                 .loss_scaling = precision == Precision::fp16,
                 .initial_scale = initial_scale},
                placed(device)),
        loss(config, *network, precision),
        meter(1 + std::ssize(loss.names()), device),
        ops({{whole_backward([this](const Batch& batch) { return loss(batch); }), network.get(), &updater, &meter}},
            samples()) {
    loss.set_done_steps(updater.done_steps());
  }

  int samples() const { return config.data.batch * config.optimizer.accumulate; }

  Network& placed(torch::Device device) {
    network->to(device);
    network->train();
    return *network;
  }

  NamedTensors state() const {  // copies on the CPU
    NamedTensors state;
    const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
      state.emplace_back(name, tensor.detach().cpu().clone());
    };
    for (const auto& [name, tensor] : state_dict(*network)) add("network." + name, tensor);
    for (const auto& [name, tensor] : updater.state()) add(name, tensor);
    add("meter", meter.state());
    return state;
  }

  void load(const NamedTensors& state) {
    const torch::NoGradGuard no_grad;
    const StateReader reader(state);
    load_strict(*network, reader.below("network."), "the state");
    updater.load_state(state);
    meter.load_state(*reader.find("meter"));
  }

  Config config;
  std::shared_ptr<Network> network;
  Updater updater;
  NetworkLoss loss;
  LossMeter meter;
  StepOps ops;
};

// `prefix`: of the names that are left out.
inline NamedTensors without(NamedTensors tensors, const std::string& prefix) {
  std::erase_if(tensors, [&](const auto& item) { return item.first.starts_with(prefix); });
  return tensors;
}

inline void expect_bit_equal(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
  }
}

// All but the times.
inline void expect_same_records(const std::vector<StepRecord>& a, const std::vector<StepRecord>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(a[i].loss, b[i].loss) << "step " << a[i].step;
    EXPECT_EQ(a[i].losses, b[i].losses) << "step " << a[i].step;
    EXPECT_EQ(a[i].learning_rate, b[i].learning_rate);
    EXPECT_EQ(a[i].skipped, b[i].skipped);
  }
}

// The process's settings, put back at its end.
class Deterministic {
 public:
  Deterministic() { apply_determinism(true); }
  ~Deterministic() { apply_determinism(false); }
};

inline bool has_card() {
  return torch::cuda::is_available();
}

}  // namespace reelgrad::test
