// Training compared with PyTorch, step by step. In float64 the two agree to rounding; in float32 only at the start.
#include <gtest/gtest.h>

#include <cmath>

#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/train/reference_support.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

using test::read_reference;
using test::ReferenceCase;
using test::relative_difference;

ReferenceCase make_case(const std::string& name, const std::function<void(Config&)>& change) {
  ReferenceCase made{.name = name, .config = test::small_config()};
  made.config.run.steps = 200;
  made.config.run.log_every = 1;
  made.config.optimizer.weight_decay = 0.01;
  made.config.ema.decay = 0.99;
  change(made.config);
  made.loss = made.config.loss.l1.on() ? "l1" : "charbonnier";
  made.averages["ema"] = made.config.ema;
  return made;
}

std::vector<ReferenceCase> reference_cases() {
  std::vector<ReferenceCase> cases{
      make_case("adamw-charbonnier-cosine-warmup",
                [](Config& c) {
                  c.schedule = {.name = "cosine", .warmup_steps = 20, .min_lr = 1e-5};
                  c.optimizer.accumulate = 2;
                }),
      make_case("adam-l1-multistep-clip",
                [](Config& c) {
                  c.optimizer.name = "adam";
                  c.loss = {.l1 = 1, .charbonnier = 0};
                  c.schedule = {.name = "multistep", .milestones = {50, 120, 121}, .gamma = 0.3};
                  c.optimizer.clip_norm = 0.05;
                }),
      make_case("adamw-l1-multistep-warmup-clip-accumulate",
                [](Config& c) {
                  c.loss = {.l1 = 1, .charbonnier = 0};
                  c.schedule = {.name = "multistep", .warmup_steps = 30, .milestones = {20, 90}, .gamma = 0.5};
                  c.optimizer.clip_norm = 0.02;
                  c.optimizer.accumulate = 2;
                }),
      make_case("adam-charbonnier-cosine",
                [](Config& c) {
                  c.optimizer.name = "adam";
                  c.schedule = {.name = "cosine"};
                }),
      make_case("adamw-charbonnier-constant", [](Config& c) { c.schedule = {.name = "constant", .warmup_steps = 10}; }),
  };
  ReferenceCase single = make_case("float32", [](Config& c) { c.run.steps = 5; });
  single.type = torch::kFloat32;
  cases.push_back(single);
  return cases;
}

const std::vector<bool> kFinite{true,  true, true, true, true, false, true, true,  false,
                                false, true, true, true, true, true,  true, false, true};

class TrainingReferenceTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // the pictures are too small to share

  const test::TemporaryFolder folder_;
};

TEST_F(TrainingReferenceTest, EveryLossRateAndWeightIsPyTorchs) {
  ASSERT_NO_FATAL_FAILURE(test::run_pytorch(folder_.path(), test::request_text(reference_cases())));
  for (const ReferenceCase& reference : reference_cases()) {
    SCOPED_TRACE(reference.name);
    const double tolerance = reference.type == torch::kFloat64 ? 1e-9 : 1e-5;
    test::FixedBatches batches(test::reference_inputs(reference.type), test::reference_targets(reference.type),
                               reference.config.data.batch * reference.config.optimizer.accumulate);
    test::MemoryRecorder recorder;
    Trainer trainer(reference.config, test::small_network(1, reference.type), torch::kCPU, batches, recorder, nullptr);
    ASSERT_EQ(trainer.run(), TrainOutcome::finished);

    auto expected = read_reference(folder_.path(), reference.name + ".out");
    ASSERT_EQ(static_cast<std::int64_t>(recorder.steps.size()), reference.config.run.steps);
    for (const StepRecord& record : recorder.steps) {
      const double loss = expected["losses"][record.step - 1].item<double>();
      const double rate = expected["rates"][record.step - 1].item<double>();
      ASSERT_LE(std::abs(record.loss - loss), tolerance * loss) << "step " << record.step;
      ASSERT_LE(std::abs(record.learning_rate - rate), 1e-12 * reference.config.optimizer.lr) << "step " << record.step;
    }
    const Snapshot& last = recorder.checkpoints.back();
    for (const auto& [name, tensor] : last.model) {
      EXPECT_LE(relative_difference(tensor, expected.at("ema." + name)), 10 * tolerance) << name;
    }
    for (const auto& [name, tensor] : last.training) {
      if (!name.starts_with("network.")) continue;
      EXPECT_LE(relative_difference(tensor, expected.at("raw." + name.substr(8))), 10 * tolerance) << name;
    }
  }
}

// One parameter, whose gradient is 1 once unscaled or infinite.
TEST_F(TrainingReferenceTest, ScaleFollowsTorchsGradScaler) {
  ASSERT_NO_FATAL_FAILURE(test::run_pytorch(folder_.path(), test::request_text({}, kFinite)));
  const torch::Tensor expected = read_reference(folder_.path(), "scaler").at("scales");
  torch::nn::Module network;
  torch::Tensor parameter = network.register_parameter("p", torch::zeros({2}));
  Updater updater({.optimizer = {.name = "sgd", .lr = 1, .momentum = 0},
                   .loss_scaling = true,
                   .initial_scale = 1024,
                   .growth_interval = 3},
                  network);
  std::int64_t skipped = 0;
  for (std::size_t i = 0; i < kFinite.size(); ++i) {
    const double before = parameter[0].item<double>();
    const double scale = Updater::read(updater.counters()).scale;
    parameter.mutable_grad() = torch::full({2}, kFinite[i] ? scale : INFINITY, torch::kFloat32);
    updater.step();
    skipped += kFinite[i] ? 0 : 1;
    const UpdateCounters counters = Updater::read(updater.counters());
    EXPECT_EQ(counters.scale, expected[static_cast<std::int64_t>(i)].item<double>()) << "step " << i;
    EXPECT_EQ(counters.skipped, skipped);
    EXPECT_EQ(counters.updates, static_cast<std::int64_t>(i) + 1 - skipped);
    EXPECT_EQ(before - parameter[0].item<double>(), kFinite[i] ? 1 : 0);
  }
  EXPECT_EQ(Updater::read(updater.counters()).skipped_in_a_row, 0);
}

}  // namespace
}  // namespace reelgrad
