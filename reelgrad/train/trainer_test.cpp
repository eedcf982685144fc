#include "reelgrad/train/trainer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using test::MemoryRecorder;
using test::PictureValidator;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Puts the process's settings back.
class Deterministic {
 public:
  Deterministic() { apply_determinism(true); }
  ~Deterministic() { apply_determinism(false); }
};

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

TEST_F(TrainerGpuTest, ResumeIsBitEqual) {
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

TEST_F(TrainerGpuTest, ResumeInMixedPrecisionIsBitEqual) {
  for (const char* amp : {"bf16", "fp16"}) {
    SCOPED_TRACE(amp);
    Config config = resume_config();
    config.precision.amp = amp;
    expect_resume_is_exact(
        config, [](std::uint64_t seed) { return test::small_network(seed); }, card_);
  }
}

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
