#include "reelgrad/train/trainer.h"

#include <gmock/gmock.h>

#include "reelgrad/base/error.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using test::Deterministic;
using test::MemoryRecorder;
using test::PictureValidator;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Trainer, RecordsThenValidatesThenSaves) {
  Config config = test::small_config();
  config.run.steps = 10;
  config.validation.every = 4;
  config.checkpoint.every = 5;
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  PictureValidator validator;
  // The first validation is the best so far, so it is saved; the others depend on the score.
  EXPECT_EQ(Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, &validator).run(5),
            TrainOutcome::stopped_at);
  EXPECT_THAT(recorder.events, ElementsAre("record 4", "validation 4", "checkpoint 4", "checkpoint 5"));
  EXPECT_EQ(recorder.checkpoints.back().best_step, 4);
}

TEST(Trainer, EndsWithARecordAValidationAndACheckpoint) {
  Config config = test::small_config();
  config.run.steps = 6;
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  PictureValidator validator;
  EXPECT_EQ(Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, &validator).run(),
            TrainOutcome::finished);
  EXPECT_THAT(recorder.events, ElementsAre("record 4", "record 6", "validation 6", "checkpoint 6"));
}

TEST(Trainer, KeepsTheEarlierOfTwoEqualScores) {
  struct Constant : Validator {
    std::optional<ValidationRecord> validate(Network&, std::int64_t, const std::function<bool()>&) override {
      return ValidationRecord{.frames = 1};
    }
  } validator;
  Config config = test::small_config();
  config.run.steps = 4;
  config.validation.every = 1;
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, &validator).run();
  EXPECT_EQ(recorder.checkpoints.back().best_step, 1);
}

TEST(Trainer, AFrameThatCannotBeHadEndsTheRunButNotWhatItHasLearned) {
  struct Torn : BatchSource {
    explicit Torn(BatchSource& whole) : source(whole) {}
    Batch next(std::int64_t step, int first, int count) override {
      if (step == 3) fail("a.vpy, output 0: frame 7: bad tape");
      return source.next(step, first, count);
    }
    BatchSource& source;
  };
  const Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  Torn torn(batches);
  MemoryRecorder recorder;
  try {
    Trainer(config, test::small_network(1), torch::kCPU, torn, recorder, nullptr).run();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("bad tape"), HasSubstr("step 3"), HasSubstr("--resume")));
  }
  EXPECT_THAT(recorder.events, ElementsAre("checkpoint 3"));
}

TEST(Trainer, MemoryThatCannotBeHadEndsTheRunButNotWhatItHasLearned) {
  struct Full : BatchSource {
    explicit Full(BatchSource& whole) : source(whole) {}
    Batch next(std::int64_t step, int first, int count) override {
      if (step == 3) throw std::bad_alloc();
      return source.next(step, first, count);
    }
    BatchSource& source;
  };
  const Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  Full full(batches);
  MemoryRecorder recorder;
  try {
    Trainer(config, test::small_network(1), torch::kCPU, full, recorder, nullptr).run();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step 4: out of memory on cpu"), HasSubstr("--resume")));
  }
  EXPECT_THAT(recorder.events, ElementsAre("checkpoint 3"));
}

TEST(Trainer, AStopInAValidationSavesAndTheResumedRunBeginsWithIt) {
  struct Stopped : PictureValidator {
    bool stop = false;
    std::optional<ValidationRecord> validate(Network& network, std::int64_t step,
                                             const std::function<bool()>& stop_requested) override {
      stop = step == 8 && seen.size() == 1;
      if (stop_requested()) return std::nullopt;
      return PictureValidator::validate(network, step, stop_requested);
    }
  };
  Config config = test::small_config();
  config.validation.every = 4;
  auto batches = test::smooth_batches(config);
  MemoryRecorder unbroken, first, second;
  PictureValidator validator;
  Trainer(config, test::small_network(1), torch::kCPU, batches, unbroken, &validator).run();

  Stopped stopped;
  TrainerHooks hooks;
  hooks.stop_requested = [&] { return stopped.stop; };
  EXPECT_EQ(Trainer(config, test::small_network(1), torch::kCPU, batches, first, &stopped, hooks).run(),
            TrainOutcome::interrupted);
  EXPECT_EQ(first.events.back(), "checkpoint 8");
  EXPECT_TRUE(first.checkpoints.back().validation_due);

  Trainer resumed(config, test::small_network(2), torch::kCPU, batches, second, &validator);
  resumed.restore(first.checkpoints.back());
  EXPECT_EQ(resumed.run(), TrainOutcome::finished);
  EXPECT_THAT(second.events,
              ElementsAre("validation 8", "checkpoint 8", "record 12", "validation 12", "checkpoint 12"));
  EXPECT_FALSE(second.checkpoints.front().validation_due);
  EXPECT_EQ(second.checkpoints.back().best_step, unbroken.checkpoints.back().best_step);
  test::expect_bit_equal(second.checkpoints.back().model, unbroken.checkpoints.back().model);
}

TEST(Trainer, AStoppedValidationDoesNotKeepARunWithoutValidationFromGoingOn) {
  const Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  MemoryRecorder first, second;
  Trainer(config, test::small_network(1), torch::kCPU, batches, first, nullptr).run(5);
  Snapshot stopped = first.checkpoints.back();
  stopped.validation_due = true;
  Trainer resumed(config, test::small_network(2), torch::kCPU, batches, second, nullptr);
  resumed.restore(stopped);
  EXPECT_EQ(resumed.run(), TrainOutcome::finished);
  EXPECT_THAT(second.events, ElementsAre("record 8", "record 12", "checkpoint 12"));
}

TEST(Trainer, AScoreThatIsNoNumberIsNeverTheBest) {
  struct Scores : Validator {
    std::optional<ValidationRecord> validate(Network&, std::int64_t step, const std::function<bool()>&) override {
      ValidationRecord record{.frames = 1};
      record.ours.psnr_rgb = step == 2 ? 30 : NAN;
      return record;
    }
  } validator;
  Config config = test::small_config();
  config.run.steps = 3;
  config.validation.every = 1;
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, &validator).run();
  EXPECT_EQ(recorder.checkpoints.back().best_step, 2);
  EXPECT_EQ(recorder.checkpoints.back().best_score, 30);
}

TEST(Trainer, ValidatesTheAveragedWeightsAndChangesNothing) {
  Config config = test::small_config();
  config.validation.every = 2;
  config.ema.decay = 0.8;
  auto batches = test::smooth_batches(config);
  MemoryRecorder with, without;
  PictureValidator validator;
  Trainer(config, test::small_network(1), torch::kCPU, batches, with, &validator).run();
  Trainer(config, test::small_network(1), torch::kCPU, batches, without, nullptr).run();
  test::expect_bit_equal(with.checkpoints.back().model, without.checkpoints.back().model);
  test::expect_bit_equal(with.checkpoints.back().training, without.checkpoints.back().training);
  test::expect_bit_equal(validator.seen.back(), with.checkpoints.back().model);
  EXPECT_FALSE(
      torch::equal(with.checkpoints.back().model.front().second, with.checkpoints.back().training.front().second));
}

TEST(Trainer, LearnsAndReportsIt) {
  Config config = test::small_config();
  config.run.steps = 60;
  config.run.log_every = 10;
  config.optimizer.lr = 5e-3;
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  std::int64_t shown = 0;
  TrainerHooks hooks;
  hooks.progress = [&](std::int64_t step, const StepRecord& record) {
    EXPECT_GT(record.loss, 0);
    EXPECT_EQ(record.step, step);
    shown = step;
  };
  Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr, hooks).run();
  EXPECT_LT(recorder.steps.back().loss, 0.7 * recorder.steps.front().loss);
  EXPECT_GT(recorder.steps.back().steps_per_second, 0);
  EXPECT_GE(shown, 1);
}

TEST(Trainer, RecordsTheTermsOfALossByName) {
  Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  MemoryRecorder one, several;
  Trainer(config, test::small_network(1), torch::kCPU, batches, one, nullptr).run();
  config.loss.ssim = 0.25;
  Trainer(config, test::small_network(1), torch::kCPU, batches, several, nullptr).run();
  for (const StepRecord& record : one.steps) EXPECT_THAT(record.losses, testing::IsEmpty());
  ASSERT_EQ(several.steps.size(), 3U);
  for (const StepRecord& record : several.steps) {
    ASSERT_THAT(record.losses,
                ElementsAre(testing::Pair("charbonnier", testing::Gt(0)), testing::Pair("ssim", testing::Gt(0))));
    EXPECT_NEAR(record.losses[0].second + record.losses[1].second, record.loss, 1e-6);
  }
}

TEST(Trainer, StopsWhenAskedWithACheckpoint) {
  const Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  MemoryRecorder recorder;
  int polls = 0;
  TrainerHooks hooks;
  hooks.stop_requested = [&] { return ++polls > 3; };
  Trainer trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr, hooks);
  EXPECT_EQ(trainer.run(), TrainOutcome::interrupted);
  EXPECT_EQ(trainer.step(), 3);
  EXPECT_THAT(recorder.events, ElementsAre("checkpoint 3"));
}

// Gives a batch with one NaN pixel at one step.
class PoisonedBatches : public BatchSource {
 public:
  PoisonedBatches(BatchSource& good, std::optional<std::int64_t> step) : good_(good), step_(step) {}  // nullopt: all
  Batch next(std::int64_t step, int first, int count) override {
    Batch batch = good_.next(step, first, count);
    if (step != step_.value_or(step)) return batch;
    batch.input = batch.input.clone();  // a view of the good pictures
    batch.input[0][0][0][0] = NAN;
    return batch;
  }

 private:
  BatchSource& good_;
  std::optional<std::int64_t> step_;
};

std::string run_error(Trainer& trainer) {
  try {
    trainer.run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Trainer, ALossThatIsNotFiniteEndsTheRunNamingTheStep) {
  Config config = test::small_config();
  config.run.log_every = 10;
  config.checkpoint.every = 5;
  auto good = test::smooth_batches(config);
  PoisonedBatches batches(good, 6);
  MemoryRecorder recorder;
  Trainer trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr);
  EXPECT_THAT(run_error(trainer),
              AllOf(HasSubstr("step 7: the loss is nan"), HasSubstr("body.0.weight"), HasSubstr("optimizer.lr")));
  EXPECT_THAT(recorder.events, ElementsAre("checkpoint 5"));
}

TEST(Trainer, WeightsThatAreNotFiniteAreNeverSaved) {
  Config config = test::small_config();
  config.run.log_every = 1000;
  config.checkpoint.every = 4;
  auto good = test::smooth_batches(config);
  PoisonedBatches batches(good, 5);
  MemoryRecorder recorder;
  Trainer trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr);
  EXPECT_THAT(run_error(trainer), AllOf(HasSubstr("step 8"), HasSubstr("not saved"), HasSubstr("body.0.weight")));
  EXPECT_THAT(recorder.events, ElementsAre("checkpoint 4"));
}

TEST(ResolveDevice, NamesTheCauseAndTheRemedy) {
  EXPECT_EQ(resolve_device("cpu"), torch::Device(torch::kCPU));
  EXPECT_THROW(resolve_device("tpu"), Error);
  EXPECT_THROW(resolve_device("xpu:0"), Error);
  if (test::has_card()) {
    EXPECT_TRUE(resolve_device("auto").is_cuda());
    return;
  }
  EXPECT_EQ(resolve_device("auto"), torch::Device(torch::kCPU));
  try {
    resolve_device("cuda");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"cuda\""), HasSubstr("reelgrad doctor"), HasSubstr("\"auto\"")));
  }
}

TEST(ApplyDeterminism, SetsTheProcess) {
  apply_determinism(true);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicCuDNN());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  apply_determinism(false);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
}

class TrainerGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  }
  const torch::Device card_{torch::kCUDA, 0};
};

// Over the whole run two seeds of float32 differ more than half precision from float32 of the same seed. (That our
// float32 on the CPU is PyTorch's: reference_test.cpp.)
TEST_F(TrainerGpuTest, HalfPrecisionLearnsAsFloat32Does) {
  Config config = test::small_config();
  config.run.steps = 300;
  config.run.log_every = 30;
  config.optimizer.lr = 5e-3;
  const auto losses = [&](const char* amp, std::uint64_t seed, torch::Device device) {
    config.precision.amp = amp;
    auto batches = test::smooth_batches(config, device);
    MemoryRecorder recorder;
    Trainer(config, test::small_network(seed), device, batches, recorder, nullptr).run();
    std::vector<double> losses;
    for (const StepRecord& record : recorder.steps) losses.push_back(record.loss);
    return losses;
  };
  const auto mean_distance = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
    return sum / static_cast<double>(a.size());
  };
  const std::vector<double> one = losses("off", 1, torch::kCPU), other = losses("off", 2, torch::kCPU);
  for (const char* amp : {"bf16", "fp16"}) {
    EXPECT_LT(mean_distance(losses(amp, 1, card_), one), mean_distance(one, other)) << amp;
  }
}

// Field case C1: one pixel that is not finite in each frame, and a loss far too large.
TEST_F(TrainerGpuTest, FloatSixteenStopsSoonNamingWhatIsNotFinite) {
  Config config = test::small_config();
  config.run.steps = 200;
  config.run.log_every = 1000;
  config.precision.amp = "fp16";
  const auto error_of = [&](BatchSource& batches) {
    MemoryRecorder recorder;
    Trainer trainer(config, test::small_network(1), card_, batches, recorder, nullptr);
    const std::string text = run_error(trainer);
    EXPECT_LE(trainer.step(), 25);
    return text;
  };
  auto good = test::smooth_batches(config, card_);
  PoisonedBatches poisoned(good, std::nullopt);
  EXPECT_THAT(error_of(poisoned), AllOf(HasSubstr("steps in a row"), HasSubstr("the input of sample 0")));
  config.loss = {.l1 = 1e30, .charbonnier = 0};
  EXPECT_THAT(error_of(good), AllOf(HasSubstr("not finite"), HasSubstr("gradient of body.")));
}

// Field case F7.
class PaddedNetwork : public Network {
 public:
  PaddedNetwork() { inner_ = register_module("inner", test::small_network(1)); }
  torch::Tensor forward(torch::Tensor input) override {
    const torch::Tensor padded = at::reflection_pad2d(inner_->forward(input), {1, 1, 1, 1});
    return at::upsample_bilinear2d(padded, {16, 16}, false);
  }
  NetworkInfo info() const override { return inner_->info(); }

 private:
  std::shared_ptr<Network> inner_;
};

TEST_F(TrainerGpuTest, ANetworkThatCannotBeDeterministicIsRefusedByTheNameOfItsOperation) {
  const Deterministic deterministic;
  Config config = test::small_config();
  config.run.deterministic = true;
  auto batches = test::smooth_batches(config, card_);
  MemoryRecorder recorder;
  Trainer trainer(config, std::make_shared<PaddedNetwork>(), card_, batches, recorder, nullptr);
  try {
    trainer.run();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("run.deterministic"), HasSubstr("_backward")));
  }
}

TEST_F(TrainerGpuTest, FollowsTheCpu) {
  Config config = test::small_config();
  config.run.steps = 40;
  config.run.log_every = 1;
  at::globalContext().setAllowTF32CuDNN(false);
  MemoryRecorder cpu, cuda;
  auto cpu_batches = test::smooth_batches(config);
  auto cuda_batches = test::smooth_batches(config, card_);
  Trainer(config, test::small_network(1), torch::kCPU, cpu_batches, cpu, nullptr).run();
  Trainer(config, test::small_network(1), card_, cuda_batches, cuda, nullptr).run();
  at::globalContext().setAllowTF32CuDNN(true);
  for (std::size_t i = 0; i < cpu.steps.size(); ++i) {
    EXPECT_NEAR(cuda.steps[i].loss, cpu.steps[i].loss, 1e-3 * cpu.steps[i].loss) << "step " << i + 1;
  }
}

TEST_F(TrainerGpuTest, LearnsInMixedPrecision) {
  for (const char* amp : {"bf16", "fp16", "auto"}) {
    SCOPED_TRACE(amp);
    Config config = test::small_config();
    config.run.steps = 100;
    config.run.log_every = 10;
    config.optimizer.lr = 5e-3;
    config.precision.amp = amp;
    auto batches = test::smooth_batches(config, card_);
    MemoryRecorder recorder;
    Trainer(config, test::small_network(1), card_, batches, recorder, nullptr).run();
    EXPECT_LT(recorder.steps.back().loss, 0.7 * recorder.steps.front().loss);
  }
}

}  // namespace
}  // namespace reelgrad
