// A network of the user's own, given as TorchScript, trained by us and by PyTorch.
#include <gtest/gtest.h>

#include <optional>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

class ScriptTrainingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace();
    const ProcessResult result =
        run_process({REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/train/script_training_reference.py",
                     folder_->path().string()},
                    std::chrono::minutes(2));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }
  void SetUp() override { at::set_num_threads(1); }

  static Config script_config() {
    Config config = test::small_config();
    config.run.steps = 20;
    config.run.log_every = 1;
    config.model.arch = "torchscript";
    config.model.options = {{"file", (*folder_ / "net.pt").string()}};
    config.optimizer.weight_decay = 0.01;
    config.ema.decay = 0;
    return config;
  }

  static std::map<std::string, torch::Tensor> read(const std::string& name) {
    const SafetensorsFile file = read_safetensors(*folder_ / (name + ".safetensors"));
    return {file.tensors.begin(), file.tensors.end()};
  }

  // Trains to the end, or from a snapshot on, or up to a step.
  static void train(test::MemoryRecorder& recorder, torch::ScalarType type, const Snapshot* from = nullptr,
                    std::optional<std::int64_t> stop_at = std::nullopt) {
    const Config config = script_config();
    auto data = read(type == torch::kFloat64 ? "float64" : "float32");
    test::FixedBatches batches(data.at("inputs"), data.at("targets"), config.data.batch);
    auto network = make_network(network_spec(config));
    network->to(type);
    Trainer trainer(config, network, torch::kCPU, batches, recorder, nullptr);
    if (from != nullptr) trainer.restore(*from);
    trainer.run(stop_at);
  }

  inline static std::optional<test::TemporaryFolder> folder_;
};

TEST_F(ScriptTrainingTest, LossesAndWeightsArePyTorchs) {
  test::MemoryRecorder recorder;
  train(recorder, torch::kFloat64);
  const auto expected = read("float64");
  ASSERT_EQ(recorder.steps.size(), 20U);
  for (const StepRecord& record : recorder.steps) {
    const double loss = expected.at("losses")[record.step - 1].item<double>();
    EXPECT_LE(std::abs(record.loss - loss), 1e-9 * loss) << "step " << record.step;
  }
  const Snapshot& last = recorder.checkpoints.back();
  EXPECT_EQ(last.model.size(), 10U);
  for (const auto& [name, tensor] : last.model) {
    const torch::Tensor& theirs = expected.at("raw." + name);
    EXPECT_LE((tensor - theirs).abs().max().item<double>(), 1e-8 * theirs.abs().max().item<double>()) << name;
  }
}

TEST_F(ScriptTrainingTest, TheFirstLossesAgreeInFloat32) {
  test::MemoryRecorder recorder;
  train(recorder, torch::kFloat32, nullptr, 5);
  const auto expected = read("float32");
  ASSERT_EQ(recorder.steps.size(), 5U);
  for (const StepRecord& record : recorder.steps) {
    const double loss = expected.at("losses")[record.step - 1].item<double>();
    EXPECT_LE(std::abs(record.loss - loss), 1e-5 * loss) << "step " << record.step;
  }
}

TEST_F(ScriptTrainingTest, AResumedRunIsBitEqual) {
  test::MemoryRecorder unbroken, begun, resumed;
  train(unbroken, torch::kFloat32);
  for (const std::int64_t stop : {1, 3, 8}) {  // within TorchScript's profiling runs, and after them
    train(begun, torch::kFloat32, nullptr, stop);
    const Snapshot snapshot = begun.checkpoints.back();
    ASSERT_EQ(snapshot.step, stop);
    train(resumed, torch::kFloat32, &snapshot);
    test::expect_bit_equal(resumed.checkpoints.back().training, unbroken.checkpoints.back().training);
  }
}

}  // namespace
}  // namespace reelgrad
