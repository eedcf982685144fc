// A run that was stopped goes on as if it had not been.
#include <gmock/gmock.h>

#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/train/test_support.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace {

using test::Deterministic;
using test::MemoryRecorder;
using test::PictureValidator;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Random in training: shows whether the generators are saved.
class DropoutNetwork : public Network {
 public:
  explicit DropoutNetwork(std::uint64_t seed) {
    torch::manual_seed(seed);
    conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 12, 3).padding(1)));
  }
  torch::Tensor forward(torch::Tensor input) override {
    return at::pixel_shuffle(at::dropout(conv_->forward(input), 0.5, is_training()), 2);
  }
  NetworkInfo info() const override { return {.scale = 2, .receptive_radius_px = 1}; }

 private:
  torch::nn::Conv2d conv_{nullptr};
};

Config resume_config() {
  Config config = test::small_config();
  config.optimizer.accumulate = 2;
  config.optimizer.clip_norm = 0.1;
  config.schedule = {.name = "cosine", .warmup_steps = 3};
  config.ema.decay = 0.9;
  config.validation.every = 5;
  config.checkpoint.every = 7;
  return config;
}

using MakeNetwork = std::function<std::shared_ptr<Network>(std::uint64_t seed)>;

// Stopped at a step and gone on with in a trainer that started elsewhere: bit for bit the unbroken run. The steps: the
// first, one with a record, one with a validation, one with a checkpoint, one just before the last.
void expect_resume_is_exact(const Config& config, const MakeNetwork& make, torch::Device device, BatchSource& batches) {
  const Deterministic deterministic;
  MemoryRecorder unbroken;
  PictureValidator validator;
  auto trained = make(1);
  torch::manual_seed(11);
  Trainer(config, trained, device, batches, unbroken, &validator).run();

  for (const std::int64_t stop : {1, 4, 5, 7, 11}) {
    SCOPED_TRACE("stopped at " + std::to_string(stop));
    MemoryRecorder recorder;
    auto network = make(1);
    torch::manual_seed(11);
    Trainer first(config, network, device, batches, recorder, &validator);
    ASSERT_EQ(first.run(stop), TrainOutcome::stopped_at);
    const Snapshot saved = recorder.checkpoints.back();
    ASSERT_EQ(saved.step, stop);

    Trainer second(config, make(2), device, batches, recorder, &validator);
    second.restore(saved);
    ASSERT_EQ(second.run(), TrainOutcome::finished);
    test::expect_same_records(recorder.steps, unbroken.steps);
    ASSERT_EQ(recorder.validations.size(), unbroken.validations.size());
    for (std::size_t i = 0; i < recorder.validations.size(); ++i) {
      EXPECT_EQ(recorder.validations[i].score(), unbroken.validations[i].score());
    }
    const Snapshot &ours = recorder.checkpoints.back(), &theirs = unbroken.checkpoints.back();
    test::expect_bit_equal(ours.model, theirs.model);
    test::expect_bit_equal(ours.training, theirs.training);
    EXPECT_EQ(ours.best_score, theirs.best_score);
    EXPECT_EQ(ours.best_step, theirs.best_step);
  }
}

void expect_resume_is_exact(const Config& config, const MakeNetwork& make, torch::Device device) {
  auto batches = test::smooth_batches(config, device);
  expect_resume_is_exact(config, make, device, batches);
}

// From step 4 on micro-batches of more than one sample do not fit.
class FullCard : public BatchSource {
 public:
  explicit FullCard(BatchSource& inner) : inner_(inner) {}
  Batch next(std::int64_t step, int first, int count) override {
    if (step == 3 && count > 1) TORCH_CHECK_WITH(OutOfMemoryError, false, "Tried to allocate 1.00 GiB.");
    return inner_.next(step, first, count);
  }

 private:
  BatchSource& inner_;
};

TEST(TrainerResume, GoesOnWithThePlanThatAnOutOfMemoryLedTo) {
  const Config config = resume_config();
  auto batches = test::smooth_batches(config);
  FullCard full(batches);
  expect_resume_is_exact(
      config, [](std::uint64_t seed) { return std::make_shared<DropoutNetwork>(seed); }, torch::kCPU, full);
}

// The second micro-batch of a step cannot be had: what its first one drew counts for nothing.
TEST(TrainerResume, AfterAFrameThatCouldNotBeHadIsExact) {
  struct Torn : BatchSource {
    explicit Torn(BatchSource& whole) : source(whole) {}
    Batch next(std::int64_t step, int first, int count) override {
      if (torn && step == 5 && first > 0) fail("a.vpy, output 0: frame 7: bad tape");
      return source.next(step, first, count);
    }
    BatchSource& source;
    bool torn = false;
  };
  const Deterministic deterministic;
  const Config config = resume_config();
  auto batches = test::smooth_batches(config);
  Torn source(batches);
  MemoryRecorder unbroken, broken;
  torch::manual_seed(11);
  Trainer(config, std::make_shared<DropoutNetwork>(1), torch::kCPU, source, unbroken, nullptr).run();
  source.torn = true;
  auto network = std::make_shared<DropoutNetwork>(1);
  torch::manual_seed(11);
  EXPECT_THROW(Trainer(config, std::make_shared<DropoutNetwork>(1), torch::kCPU, source, broken, nullptr).run(), Error);
  source.torn = false;
  Trainer second(config, network, torch::kCPU, source, broken, nullptr);
  second.restore(broken.checkpoints.back());
  EXPECT_EQ(second.step(), 5);
  second.run();
  test::expect_bit_equal(broken.checkpoints.back().training, unbroken.checkpoints.back().training);
}

TEST(TrainerResume, OnAnotherMachineSaysThatItIsNotBitForBit) {
  const Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr).run(3);
  Snapshot snapshot = recorder.checkpoints.back();
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "log.txt";
  const auto resume = [&] {
    const log::FileGuard guard = log::add_file(file.string());
    Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr).restore(snapshot);
    return read_file(file);
  };
  EXPECT_THAT(resume(), testing::Not(HasSubstr("bit for bit")));
  for (auto& [name, tensor] : snapshot.training)
    if (name == "machine")
      tensor = torch::tensor(std::vector<std::uint8_t>{'a', ' ', 'c', 'a', 'r', 'd'}, torch::kUInt8);
  EXPECT_THAT(resume(), AllOf(HasSubstr("the run was on a card so far"), HasSubstr("not bit for bit")));
}

TEST(TrainerResume, IsBitEqualToTheUnbrokenRun) {
  expect_resume_is_exact(
      resume_config(), [](std::uint64_t seed) { return test::small_network(seed); }, torch::kCPU);
}

TEST(TrainerResume, RepeatsDropout) {
  expect_resume_is_exact(
      resume_config(), [](std::uint64_t seed) { return std::make_shared<DropoutNetwork>(seed); }, torch::kCPU);
}

TEST(TrainerResume, SurvivesAFile) {
  const Config config = resume_config();
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr).run(6);
  const Snapshot& saved = recorder.checkpoints.back();
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "training.safetensors";
  write_safetensors(file, saved.training);
  test::expect_bit_equal(read_safetensors(file).tensors, saved.training);
}

TEST(TrainerResume, RefusesASnapshotOfAnotherNetwork) {
  const Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  Trainer(config, std::make_shared<DropoutNetwork>(1), torch::kCPU, batches, recorder, nullptr).run(2);
  Trainer other(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr);
  try {
    other.restore(recorder.checkpoints.back());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("checkpoint of step 2"), HasSubstr("conv.weight")));
  }
}

class TrainerResumeGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  }
  const torch::Device card_{torch::kCUDA, 0};
};

TEST_F(TrainerResumeGpuTest, ResumeIsBitEqual) {
  for (const char* graph : {"auto", "off"}) {
    SCOPED_TRACE(graph);
    Config config = resume_config();
    config.run.graph = graph;
    expect_resume_is_exact(
        config, [](std::uint64_t seed) { return test::small_network(seed); }, card_);
    expect_resume_is_exact(
        config, [](std::uint64_t seed) { return std::make_shared<DropoutNetwork>(seed); }, card_);
  }
}

TEST_F(TrainerResumeGpuTest, ResumeInMixedPrecisionIsBitEqual) {
  for (const char* amp : {"bf16", "fp16"}) {
    SCOPED_TRACE(amp);
    Config config = resume_config();
    config.precision.amp = amp;
    expect_resume_is_exact(
        config, [](std::uint64_t seed) { return test::small_network(seed); }, card_);
  }
}

}  // namespace
}  // namespace reelgrad
