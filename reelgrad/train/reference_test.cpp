// Training compared with PyTorch, step by step. In float64 the two agree to rounding; in float32 only at the start.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/train/grad_scaler.h"
#include "reelgrad/train/schedule.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

struct ReferenceCase {
  std::string name;
  torch::ScalarType type = torch::kFloat64;
  Config config;

  std::string dtype() const { return type == torch::kFloat64 ? "float64" : "float32"; }
};

ReferenceCase make_case(const std::string& name, const std::function<void(Config&)>& change) {
  ReferenceCase made{.name = name, .config = test::small_config()};
  made.config.run.steps = 200;
  made.config.run.log_every = 1;
  made.config.optimizer.weight_decay = 0.01;
  made.config.ema.decay = 0.99;
  change(made.config);
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

nlohmann::json to_json(const ReferenceCase& reference) {
  const Config& c = reference.config;
  return {{"name", reference.name},
          {"dtype", reference.dtype()},
          {"steps", c.run.steps},
          {"batch", c.data.batch},
          {"accumulate", c.optimizer.accumulate},
          {"optimizer", c.optimizer.name},
          {"lr", c.optimizer.lr},
          {"beta1", c.optimizer.beta1},
          {"beta2", c.optimizer.beta2},
          {"adam_eps", c.optimizer.eps},
          {"weight_decay", c.optimizer.weight_decay},
          {"clip_norm", c.optimizer.clip_norm},
          {"loss", c.loss.l1 > 0 ? "l1" : "charbonnier"},
          {"eps", c.loss.charbonnier_eps},
          {"schedule", c.schedule.name},
          {"warmup_steps", c.schedule.warmup_steps},
          {"milestones", c.schedule.milestones},
          {"gamma", c.schedule.gamma},
          {"min_lr", c.schedule.min_lr},
          {"ema", c.ema.decay}};
}

const std::vector<bool> kFinite{true,  true, true, true, true, false, true, true,  false,
                                false, true, true, true, true, true,  true, false, true};

// Where the two sides exchange files.
class TrainingReferenceTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // the pictures are too small to share

  void write_samples(const std::vector<ReferenceCase>& cases) {
    for (const ReferenceCase& reference : cases) {
      const torch::ScalarType type = reference.type;
      NamedTensors data{{"inputs", inputs_.to(type)}, {"targets", targets_.to(type)}};
      for (const auto& [name, tensor] : state_dict(*test::small_network(1, type))) {
        data.emplace_back("init." + name, tensor);
      }
      write_safetensors(folder_ / (reference.dtype() + ".safetensors"), data);
    }
  }

  void run_pytorch(const std::vector<ReferenceCase>& cases, const std::vector<bool>& finite) {
    nlohmann::json request{{"cases", nlohmann::json::array()}, {"finite", finite}};
    for (const ReferenceCase& reference : cases) request["cases"].push_back(to_json(reference));
    std::ofstream(folder_ / "cases.json") << request;
    const ProcessResult result = run_process(
        {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/train/train_reference.py", folder_.path().string()},
        std::chrono::minutes(4));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  std::map<std::string, torch::Tensor> read(const std::string& name) const {
    const SafetensorsFile file = read_safetensors(folder_ / (name + ".safetensors"));
    return {file.tensors.begin(), file.tensors.end()};
  }

  const test::TemporaryFolder folder_;
  const torch::Tensor inputs_ = torch::rand({10, 3, 8, 8}, at::detail::createCPUGenerator(3), torch::kFloat64);
  const torch::Tensor targets_ = torch::rand({10, 3, 16, 16}, at::detail::createCPUGenerator(4), torch::kFloat64);
};

double relative_difference(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

TEST_F(TrainingReferenceTest, EveryLossRateAndWeightIsPyTorchs) {
  write_samples(reference_cases());
  ASSERT_NO_FATAL_FAILURE(run_pytorch(reference_cases(), {}));
  for (const ReferenceCase& reference : reference_cases()) {
    SCOPED_TRACE(reference.name);
    const double tolerance = reference.type == torch::kFloat64 ? 1e-9 : 1e-5;
    test::FixedBatches batches(inputs_.to(reference.type), targets_.to(reference.type),
                               reference.config.data.batch * reference.config.optimizer.accumulate);
    test::MemoryRecorder recorder;
    Trainer trainer(reference.config, test::small_network(1, reference.type), torch::kCPU, batches, recorder, nullptr);
    ASSERT_EQ(trainer.run(), TrainOutcome::finished);

    auto expected = read(reference.name + ".out");
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

TEST_F(TrainingReferenceTest, ScaleFollowsTorchsGradScaler) {
  ASSERT_NO_FATAL_FAILURE(run_pytorch({}, kFinite));
  const torch::Tensor expected = read("scaler").at("scales");
  GradScaler scaler(torch::kCPU, {.initial_scale = 1024, .growth_interval = 3});
  std::int64_t skipped = 0;
  for (std::size_t i = 0; i < kFinite.size(); ++i) {
    const double scale = scaler.counters().scale;
    torch::Tensor gradient = torch::full({2}, kFinite[i] ? scale : INFINITY, torch::kFloat32);
    scaler.unscale({gradient});
    EXPECT_EQ(scaler.found_inf().item<float>(), kFinite[i] ? 0 : 1);
    if (kFinite[i]) {
      EXPECT_EQ(gradient[0].item<float>(), 1);
    }
    scaler.update();
    skipped += kFinite[i] ? 0 : 1;
    EXPECT_EQ(scaler.counters().scale, expected[static_cast<std::int64_t>(i)].item<double>()) << "step " << i;
    EXPECT_EQ(scaler.counters().skipped, skipped);
    EXPECT_EQ(scaler.counters().updates, static_cast<std::int64_t>(i) + 1 - skipped);
  }
  EXPECT_EQ(scaler.counters().skipped_in_a_row, 0);
}

}  // namespace
}  // namespace reelgrad
