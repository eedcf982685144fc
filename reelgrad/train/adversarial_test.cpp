// Two networks trained against each other: compared with PyTorch, stopped and gone on with, and on a card.
#include "reelgrad/train/adversary.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/train/failing_card_allocator.h"
#include "reelgrad/train/memory_plan.h"
#include "reelgrad/train/reference_support.h"
#include "reelgrad/train/trained_network.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

using ::testing::HasSubstr;

Config adversarial_config() {
  Config config = test::small_config();
  config.run.log_every = 1;
  config.loss = {.l1 = 1, .charbonnier = 0};
  config.loss.gan.weight = 0.1;
  config.discriminator.features = 4;
  config.optimizer.name = "adam";
  config.discriminator.optimizer.name = "adam";
  config.discriminator.optimizer.lr = 5e-4;
  config.ema = {.decay = 0.9, .warmup = false};
  return config;
}

std::shared_ptr<Discriminator> discriminator_of(const Config& config, torch::ScalarType type = torch::kFloat32,
                                                std::uint64_t seed = 7) {
  std::shared_ptr<Discriminator> made = make_discriminator(discriminator_options(config), seed);
  made->to(type);
  return made;
}

struct AdversarialCase {
  std::string name;
  Config config;
  nlohmann::json more = nlohmann::json::object();  // for the reference alone
};

AdversarialCase make_adversarial_case(const std::string& name, const std::function<void(Config&)>& change) {
  AdversarialCase made{name, adversarial_config()};
  made.config.run.steps = 100;
  made.config.schedule = made.config.discriminator.schedule = {.name = "cosine"};
  change(made.config);
  return made;
}

std::vector<AdversarialCase> adversarial_cases() {
  return {
      make_adversarial_case("vanilla",
                            [](Config& c) {
                              c.loss.gan.label_smoothing = 0.1;
                              c.optimizer.clip_norm = 0.2;
                              c.discriminator.optimizer.clip_norm = 0.5;
                            }),
      make_adversarial_case("hinge",
                            [](Config& c) {
                              c.loss.gan.kind = "hinge";
                              c.loss.ldl = 2;
                              c.discriminator.r1 = 2;
                              c.optimizer.accumulate = 2;
                            }),
      make_adversarial_case("ragan",
                            [](Config& c) {
                              c.loss.gan.kind = "ragan";
                              c.discriminator.iters = 2;
                              c.discriminator.init_iters = 5;
                              c.optimizer.accumulate = 2;
                            }),
      make_adversarial_case("pairs",
                            [](Config& c) {
                              c.loss.temporal = 0.5;
                              c.discriminator.frames = 2;
                            }),
      make_adversarial_case("windows",
                            [](Config& c) {
                              c.run.steps = 30;
                              c.discriminator.frames = 3;
                            }),
      make_adversarial_case("changes of windows",
                            [](Config& c) {
                              c.run.steps = 30;
                              c.loss.temporal = 0.5;
                              c.discriminator.frames = 5;
                            }),
  };
}

// One step of the discriminator is skipped, then one of both.
std::vector<AdversarialCase> scaled_cases() {
  std::vector<AdversarialCase> cases;
  for (const char* scaler : {"own", "shared"}) {
    AdversarialCase one = make_adversarial_case(std::string("scaler ") + scaler, [&](Config& c) {
      c.run.steps = 20;
      c.schedule = c.discriminator.schedule = {};
      c.discriminator.scaler = scaler;
      c.discriminator.init_iters = 2;
    });
    one.more = {{"scaler", scaler}, {"bad_targets", {7}}, {"bad_inputs", {12}}};
    cases.push_back(std::move(one));
  }
  return cases;
}

nlohmann::json to_json(const AdversarialCase& one) {
  const Config& c = one.config;
  nlohmann::json json{{"name", one.name},
                      {"kind", c.loss.gan.kind},
                      {"label_smoothing", c.loss.gan.label_smoothing},
                      {"gan", 0.1},
                      {"steps", c.run.steps},
                      {"batch", c.data.batch},
                      {"accumulate", c.optimizer.accumulate},
                      {"lr", c.optimizer.lr},
                      {"lr_d", c.discriminator.optimizer.lr},
                      {"clip", c.optimizer.clip_norm},
                      {"clip_d", c.discriminator.optimizer.clip_norm},
                      {"iters", c.discriminator.iters},
                      {"init_iters", c.discriminator.init_iters},
                      {"r1", c.discriminator.r1},
                      {"schedule", c.schedule.name},
                      {"temporal", c.loss.temporal.weight},
                      {"ldl", c.loss.ldl.weight},
                      {"frames", c.discriminator.frames}};
  json.update(one.more);
  return json;
}

void write_request(const std::filesystem::path& folder) {
  nlohmann::json cases = nlohmann::json::array();
  NamedTensors start{{"inputs", test::reference_inputs(torch::kFloat64)},
                     {"targets", test::reference_targets(torch::kFloat64)}};
  for (const auto& [name, tensor] : state_dict(*test::small_network(1, torch::kFloat64)))
    start.emplace_back("generator." + name, tensor);
  for (const int frames : {1, 2, 3, 5}) {
    Config config = adversarial_config();
    config.discriminator.frames = frames;
    for (const auto& [name, tensor] : state_dict(*discriminator_of(config, torch::kFloat64)))
      start.emplace_back("discriminator" + std::to_string(frames) + "." + name, tensor);
  }
  for (const AdversarialCase& one : adversarial_cases()) cases.push_back(to_json(one));
  for (const AdversarialCase& one : scaled_cases()) cases.push_back(to_json(one));
  write_safetensors(folder / "start.safetensors", start);
  std::ofstream(folder / "cases.json") << cases.dump();
}

test::FixedBatches reference_batches(const Config& config) {
  torch::Tensor inputs = test::reference_inputs(torch::kFloat64), targets = test::reference_targets(torch::kFloat64);
  if (const int frames = config.discriminator.frames; frames > 1) {
    const std::int64_t samples = inputs.size(0) / frames;
    inputs = inputs.narrow(0, 0, samples * frames).unflatten(0, {samples, frames});
    targets = targets.narrow(0, 0, samples * frames).unflatten(0, {samples, frames});
  }
  return {inputs, targets, config.data.batch * config.optimizer.accumulate};
}

using Expected = std::map<std::string, torch::Tensor>;

void expect_near_series(const Expected& expected, const std::string& name, std::int64_t step, double value) {
  const double right = expected.at(name)[step - 1].item<double>();
  if (std::isnan(right)) {
    ASSERT_TRUE(std::isnan(value)) << name << ", step " << step;
  } else {
    ASSERT_NEAR(value, right, 1e-9 * std::max(1.0, std::abs(right))) << name << ", step " << step;
  }
}

void expect_near_state(const NamedTensors& state, const Expected& expected, const std::string& prefix) {
  for (const auto& [name, tensor] : state)
    EXPECT_LE(test::relative_difference(tensor, expected.at(prefix + name)), 1e-9) << prefix << name;
}

void expect_runs_are_those_of_pytorch(const std::filesystem::path& folder) {
  for (const AdversarialCase& one : adversarial_cases()) {
    SCOPED_TRACE(one.name);
    test::FixedBatches batches = reference_batches(one.config);
    test::MemoryRecorder recorder;
    Trainer trainer(one.config, test::small_network(1, torch::kFloat64), torch::kCPU, batches, recorder, nullptr, {},
                    discriminator_of(one.config, torch::kFloat64));
    ASSERT_EQ(trainer.run(), TrainOutcome::finished);
    const Expected expected = test::read_reference(folder, one.name + ".out");
    ASSERT_EQ(std::ssize(recorder.steps), one.config.run.steps);
    for (const StepRecord& record : recorder.steps) {
      const AdversarialRecord& theirs = record.discriminator.value();
      ASSERT_NO_FATAL_FAILURE(expect_near_series(expected, "loss", record.step, record.loss));
      ASSERT_NO_FATAL_FAILURE(expect_near_series(expected, "loss_d", record.step, theirs.loss));
      ASSERT_NO_FATAL_FAILURE(expect_near_series(expected, "real", record.step, theirs.real));
      ASSERT_NO_FATAL_FAILURE(expect_near_series(expected, "fake", record.step, theirs.fake));
      ASSERT_NO_FATAL_FAILURE(expect_near_series(expected, "norm", record.step, theirs.generator_gradient_norm));
      ASSERT_NO_FATAL_FAILURE(expect_near_series(expected, "norm_d", record.step, theirs.gradient_norm));
    }
    const Snapshot& last = recorder.checkpoints.back();
    expect_near_state(last.model, expected, "ema.");
    expect_near_state(StateReader(last.training).below("network."), expected, "generator.");
    expect_near_state(last.discriminator, expected, "discriminator.");
  }
}

// fp16 cannot be trained on the CPU, but its loss scales can: they are the updaters', whatever the type.
class ScaledPair {
 public:
  explicit ScaledPair(const Config& config)
      : config_(config),
        network_(test::small_network(1, torch::kFloat64)),
        adversary_(config, discriminator_of(config, torch::kFloat64), torch::kCPU, Precision::fp32),
        loss_(config, *network_, Precision::fp32, &adversary_),
        generator_(*network_, options(config.optimizer, config.ema), 1 + std::ssize(loss_.names()), torch::kCPU),
        opponent_(adversary_.network(), options(config.discriminator.optimizer, {.decay = 0}), 2 + Adversary::kMeasures,
                  torch::kCPU),
        ops_(phases(), config.data.batch, config.discriminator.scaler == "shared") {}

  // Of step `step`, with inputs or targets that are not finite.
  void run(std::int64_t step, const nlohmann::json& bad) {
    const auto is_bad = [&](const char* key) {
      const auto steps = bad.value(key, std::vector<std::int64_t>());
      return std::ranges::find(steps, step) != steps.end();
    };
    test::FixedBatches batches = reference_batches(config_);
    Batch batch = batches.next(step, 0, config_.data.batch);
    if (is_bad("bad_inputs")) batch.input = at::full_like(batch.input, INFINITY);
    if (is_bad("bad_targets")) batch.target = at::full_like(batch.target, INFINITY);
    const StepKind kind = ops_.kind_of(step);
    ops_.drop_gradients();
    ops_.accumulate(batch, kind);
    ops_.finish(kind);
  }

  std::pair<double, double> scales() const {
    return {Updater::read(generator_.updater.counters()).scale, Updater::read(opponent_.updater.counters()).scale};
  }

  NamedTensors state() const {
    NamedTensors state;
    put_state(state, "generator.", state_dict(*network_));
    put_state(state, "discriminator.", state_dict(adversary_.network()));
    put_state(state, "updater.", generator_.updater.state());
    put_state(state, "opponent.", opponent_.updater.state());
    return state;
  }

  void load(const NamedTensors& state) {
    const torch::NoGradGuard no_grad;
    const StateReader reader(state);
    load_strict(*network_, reader.below("generator."), "the state");
    load_strict(adversary_.network(), reader.below("discriminator."), "the state");
    generator_.updater.load_state(reader.below("updater."));
    opponent_.updater.load_state(reader.below("opponent."));
  }

 private:
  static Updater::Options options(const OptimizerConfig& optimizer, const EmaConfig& ema) {
    return {.optimizer = optimizer, .ema = ema, .loss_scaling = true, .initial_scale = 1024, .growth_interval = 3};
  }

  std::vector<Phase> phases() {
    std::vector<Phase> all{
        {[this](const Batch& batch, const Backward& backward) { return loss_.add_gradients(batch, backward); },
         network_.get(), &generator_.updater, &generator_.meter},
        {[this](const Batch& batch, const Backward& backward) {
           return adversary_.add_gradients(loss_.target(batch), backward);
         },
         &adversary_.network(), &opponent_.updater, &opponent_.meter}};
    all.front().is_due = [steps = generator_steps(config_)](std::int64_t at) { return steps.contains(at); };
    all.front().instead = [this](const Batch& batch) { loss_.predict(batch); };
    return all;
  }

  Config config_;
  std::shared_ptr<Network> network_;
  Adversary adversary_;
  NetworkLoss loss_;
  TrainedNetwork generator_, opponent_;
  StepOps ops_;
};

void expect_loss_scales_are_those_of_pytorch(const std::filesystem::path& folder) {
  for (const AdversarialCase& one : scaled_cases()) {
    SCOPED_TRACE(one.name);
    const Expected expected = test::read_reference(folder, one.name + ".out");
    const torch::Tensor scales = expected.at("scales");
    ScaledPair pair(one.config);
    ScaledPair resumed(one.config);
    for (std::int64_t step = 0; step < one.config.run.steps; ++step) {
      pair.run(step, one.more);
      EXPECT_EQ(pair.scales(), std::pair(scales[step][0].item<double>(), scales[step][1].item<double>())) << step;
      if (step == 5) resumed.load(pair.state());
      if (step > 5) resumed.run(step, one.more);
    }
    const NamedTensors state = pair.state();
    expect_near_state(StateReader(state).below("generator."), expected, "generator.");
    expect_near_state(StateReader(state).below("discriminator."), expected, "discriminator.");
    expect_near_state(StateReader(state).below("updater.ema."), expected, "ema.");
    test::expect_bit_equal(resumed.state(), state);
  }
}

// One test: PyTorch's side is computed once.
TEST(AdversarialReferenceTest, EveryLossScaleAndWeightIsThatOfAPyTorchLoop) {
  at::set_num_threads(1);
  const test::TemporaryFolder folder;
  write_request(folder.path());
  const ProcessResult result = run_process(
      {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/train/adversarial_reference.py", folder.path().string()},
      std::chrono::minutes(5));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_runs_are_those_of_pytorch(folder.path());
  expect_loss_scales_are_those_of_pytorch(folder.path());
}

// --- Steps that leave the generator alone ---

TEST(Adversarial, StepsOfTheDiscriminatorAloneLeaveTheGeneratorAsItIs) {
  Config config = adversarial_config();
  config.discriminator.init_iters = 4;
  auto batches = test::smooth_batches(config);
  test::MemoryRecorder recorder;
  Trainer trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr, {},
                  discriminator_of(config));
  trainer.run(3);
  const Snapshot before = recorder.checkpoints.back();
  trainer.run(4);
  const Snapshot after = recorder.checkpoints.back();
  test::expect_bit_equal(before.model, after.model);
  const auto of_generator = [](NamedTensors state) {
    for (const char* other : {"discriminator.", "meter."}) state = test::without(std::move(state), other);
    return state;
  };
  test::expect_bit_equal(of_generator(before.training), of_generator(after.training));
  test::expect_bit_equal(after.model, state_dict(*test::small_network(1)));
  EXPECT_FALSE(torch::equal(before.discriminator.front().second, after.discriminator.front().second));
  EXPECT_TRUE(std::isnan(recorder.steps.back().loss));
  trainer.run(5);
  EXPECT_TRUE(std::isfinite(recorder.steps.back().loss));
  EXPECT_FALSE(torch::equal(recorder.checkpoints.back().model.front().second, after.model.front().second));
}

TEST(Adversarial, TheScheduleOfAGeneratorIsByStepsOfTheRun) {
  const UpdateSteps updates{.first = 5, .every = 3};  // 5, 8, 11
  EXPECT_FALSE(updates.contains(2));
  EXPECT_TRUE(updates.contains(8));
  EXPECT_FALSE(updates.contains(9));
  EXPECT_EQ(updates.before(5), 0);
  EXPECT_EQ(updates.before(6), 1);
  EXPECT_EQ(updates.before(9), 2);
  const ScheduleConfig cosine{.name = "cosine"};
  EXPECT_EQ(Schedule(cosine, 1, 100, updates).at(2), Schedule(cosine, 1, 100).at(11));
}

// --- Going on ---

// At one step micro-batches of more than so many samples do not fit.
class FullAtOneStep : public BatchSource {
 public:
  FullAtOneStep(BatchSource& inner, std::int64_t step, int most) : inner_(inner), step_(step), most_(most) {}
  Batch next(std::int64_t step, int first, int count) override {
    if (step == step_ && count > most_) TORCH_CHECK_WITH(OutOfMemoryError, false, "Tried to allocate 1.00 GiB.");
    return inner_.next(step, first, count);
  }

 private:
  BatchSource& inner_;
  std::int64_t step_;
  int most_;
};

void expect_adversarial_resume_is_exact(const Config& config, torch::Device device, BatchSource& batches) {
  apply_determinism(true);
  test::MemoryRecorder unbroken;
  Trainer(config, test::small_network(1), device, batches, unbroken, nullptr, {}, discriminator_of(config)).run();
  for (const std::int64_t stop : {1, 4, 7, 11}) {
    SCOPED_TRACE("stopped at " + std::to_string(stop));
    test::MemoryRecorder recorder;
    Trainer first(config, test::small_network(1), device, batches, recorder, nullptr, {}, discriminator_of(config));
    ASSERT_EQ(first.run(stop), TrainOutcome::stopped_at);
    const Snapshot saved = recorder.checkpoints.back();
    Trainer second(config, test::small_network(2), device, batches, recorder, nullptr, {},
                   discriminator_of(config, torch::kFloat32, 9));
    second.restore(saved);
    ASSERT_EQ(second.run(), TrainOutcome::finished);
    ASSERT_EQ(recorder.steps.size(), unbroken.steps.size());
    for (std::size_t i = 0; i < recorder.steps.size(); ++i) {
      const StepRecord &ours = recorder.steps[i], &theirs = unbroken.steps[i];
      EXPECT_TRUE(ours.loss == theirs.loss || (std::isnan(ours.loss) && std::isnan(theirs.loss))) << ours.step;
      EXPECT_EQ(ours.discriminator->loss, theirs.discriminator->loss) << ours.step;
      EXPECT_EQ(ours.discriminator->right, theirs.discriminator->right) << ours.step;
      EXPECT_EQ(ours.discriminator->gradient_norm, theirs.discriminator->gradient_norm) << ours.step;
    }
    test::expect_bit_equal(recorder.checkpoints.back().model, unbroken.checkpoints.back().model);
    test::expect_bit_equal(recorder.checkpoints.back().training, unbroken.checkpoints.back().training);
    test::expect_bit_equal(recorder.checkpoints.back().discriminator, unbroken.checkpoints.back().discriminator);
  }
  apply_determinism(false);
}

Config going_on_config() {
  Config config = adversarial_config();
  config.run.log_every = 4;
  config.optimizer.accumulate = 2;
  config.optimizer.clip_norm = 0.1;
  config.discriminator.init_iters = 3;
  config.discriminator.iters = 2;
  config.schedule = {.name = "cosine", .warmup_steps = 3};
  config.discriminator.schedule = {.name = "linear"};
  config.loss.ldl = 1;  // looks at the average too
  return config;
}

TEST(AdversarialResume, IsExact) {
  const Config config = going_on_config();
  auto batches = test::smooth_batches(config);
  expect_adversarial_resume_is_exact(config, torch::kCPU, batches);
}

TEST(AdversarialResume, IsExactAfterAnOutOfMemory) {
  Config config = going_on_config();
  config.optimizer.accumulate = 1;
  config.data.batch = 4;
  auto batches = test::smooth_batches(config);
  FullAtOneStep full(batches, 3, 1);
  expect_adversarial_resume_is_exact(config, torch::kCPU, full);
}

TEST(AdversarialResume, ARunTakesUpAnAdversaryOnItsWay) {
  Config config = adversarial_config();
  config.loss.gan.weight = 0;
  auto batches = test::smooth_batches(config);
  test::MemoryRecorder recorder;
  Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr).run(4);
  EXPECT_TRUE(recorder.checkpoints.back().discriminator.empty());
  const Snapshot saved = recorder.checkpoints.back();
  config.loss.gan.weight = 0.1;
  Trainer second(config, test::small_network(2), torch::kCPU, batches, recorder, nullptr, {}, discriminator_of(config));
  second.restore(saved);
  EXPECT_EQ(second.run(), TrainOutcome::finished);
  EXPECT_FALSE(recorder.checkpoints.back().discriminator.empty());
  EXPECT_TRUE(recorder.steps.back().discriminator.has_value());
}

// --- What is said of it ---

TEST(Adversarial, TheDiscriminatorsLossThatIsNotFiniteEndsTheRun) {
  Config config = adversarial_config();
  config.discriminator.optimizer.lr = 10;
  config.discriminator.optimizer.name = "sgd";
  config.discriminator.optimizer.momentum = 0.99;
  config.discriminator.r1 = 1e6;
  config.run.steps = 200;
  auto batches = test::smooth_batches(config);
  test::MemoryRecorder recorder;
  Trainer trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr, {},
                  discriminator_of(config));
  try {
    trainer.run();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("loss is"));
    EXPECT_THAT(error.what(), HasSubstr("not finite"));
  }
}

TEST(Adversarial, TheLossesOfTheGeneratorAreNamed) {
  const Config config = adversarial_config();
  auto batches = test::smooth_batches(config);
  test::MemoryRecorder recorder;
  Trainer(config, test::small_network(1), torch::kCPU, batches, recorder, nullptr, {}, discriminator_of(config)).run(1);
  const StepRecord& record = recorder.steps.back();
  ASSERT_EQ(record.losses.size(), 2U);
  EXPECT_EQ(record.losses[0].first, "l1");
  EXPECT_EQ(record.losses[1].first, "gan");
  EXPECT_NEAR(record.loss, record.losses[0].second + record.losses[1].second, 1e-6);
  EXPECT_GE(record.discriminator->right, 0);
  EXPECT_LE(record.discriminator->right, 1);
}

// --- On a card ---

const torch::Device kAdversarialCard{torch::kCUDA, 0};

class AdversarialGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);  // spectral norm multiplies matrices
    stream_.emplace(c10::cuda::getStreamFromPool(false, 0));
    apply_determinism(true);
  }
  void TearDown() override { apply_determinism(false); }

  std::optional<c10::cuda::CUDAStreamGuard> stream_;

  static Snapshot last_of(const Config& config, BatchSource& batches, const TrainerHooks& hooks = {},
                          std::uint64_t seed = 1, double* loss = nullptr) {
    test::MemoryRecorder recorder;
    Trainer(config, test::small_network(seed), kAdversarialCard, batches, recorder, nullptr, hooks,
            discriminator_of(config, torch::kFloat32, 6 + seed))
        .run();
    if (loss != nullptr) *loss = recorder.steps.back().losses.front().second;
    return recorder.checkpoints.back();
  }

  static void expect_equal(const Snapshot& a, const Snapshot& b) {
    test::expect_bit_equal(a.model, b.model);
    test::expect_bit_equal(test::without(a.training, "memory_plan"), test::without(b.training, "memory_plan"));
    test::expect_bit_equal(a.discriminator, b.discriminator);
  }
};

// Steps of both kinds, each a graph of its own; with micro-batches three.
TEST_F(AdversarialGpuTest, GraphsEqualEagerStepsBitForBit) {
  for (const char* amp : {"off", "fp16", "bf16"}) {
    for (const int parts : {1, 2}) {
      SCOPED_TRACE(testing::Message() << amp << ", " << parts << " parts");
      Config config = going_on_config();
      config.run.steps = 16;
      config.precision.amp = amp;
      config.discriminator.scaler = parts == 2 ? "shared" : "own";
      config.optimizer.accumulate = parts;
      auto batches = test::smooth_batches(config, kAdversarialCard);
      const Snapshot graph = last_of(config, batches);
      config.run.graph = "off";
      expect_equal(graph, last_of(config, batches));
    }
  }
}

TEST_F(AdversarialGpuTest, WithR1AndRelativisticLossesGraphsEqualEagerStepsBitForBit) {
  Config config = adversarial_config();
  config.precision.amp = "bf16";
  config.loss.gan.kind = "ragan";
  config.discriminator.r1 = 1;
  auto batches = test::smooth_batches(config, kAdversarialCard);
  const Snapshot graph = last_of(config, batches);
  config.run.graph = "off";
  expect_equal(graph, last_of(config, batches));
}

TEST_F(AdversarialGpuTest, ResumeIsExact) {
  for (const auto& [amp, scaler] : {std::pair{"off", "own"}, std::pair{"fp16", "own"}, std::pair{"fp16", "shared"}}) {
    SCOPED_TRACE(testing::Message() << amp << ", scaler " << scaler);
    Config config = going_on_config();
    config.precision.amp = amp;
    config.discriminator.scaler = scaler;
    auto batches = test::smooth_batches(config, kAdversarialCard);
    expect_adversarial_resume_is_exact(config, kAdversarialCard, batches);
    config.optimizer.accumulate = 1;
    config.data.batch = 4;
    auto others = test::smooth_batches(config, kAdversarialCard);
    FullAtOneStep full(others, 3, 1);
    expect_adversarial_resume_is_exact(config, kAdversarialCard, full);
  }
}

// Memory runs out at allocations of an eager step: both networks' buffers are put back, and the run is one that had
// split its batch there.
TEST_F(AdversarialGpuTest, OutOfMemoryInAStepChangesNothingButThePlan) {
  Config config = adversarial_config();
  config.run.steps = 5;
  config.data.batch = 4;
  auto batches = test::smooth_batches(config, kAdversarialCard);
  FullAtOneStep full(batches, 1, 2);
  const Snapshot split = last_of(config, full);
  test::FailingCardAllocator allocator;
  int failures = 0;
  for (std::int64_t nth = 1;; nth += 9) {
    int step = 0;
    bool failed = false;
    const TrainerHooks hooks{.stop_requested = [&] {  // before each step
      if (step == 1) allocator.fail_at(nth);
      if (step == 2) {
        failed = allocator.has_failed();
        allocator.fail_at(0);
      }
      ++step;
      return false;
    }};
    const Snapshot ours = last_of(config, batches, hooks);
    if (!failed) break;
    ++failures;
    // Libraries do without a workspace that they cannot have.
    if (memory_plan(*StateReader(ours.training).find("memory_plan")).parts == 2) expect_equal(ours, split);
    ASSERT_FALSE(HasFailure()) << "allocation " << nth;
  }
  EXPECT_GT(failures, 5);
}

// Runs of one seed end apart once their rounding differs, as the two networks answer each other; what four seeds give
// on average does not depend on the precision by more than the seeds lie apart.
TEST_F(AdversarialGpuTest, HalfPrecisionIsWithinTheSpreadOfSeeds) {
  Config config = adversarial_config();
  config.run.steps = 300;
  config.run.log_every = 100;
  auto batches = test::smooth_batches(config, kAdversarialCard);
  const auto losses_of_seeds = [&](const char* amp) {
    config.precision.amp = amp;
    std::vector<double> losses(4);
    for (std::uint64_t seed = 1; seed <= losses.size(); ++seed) last_of(config, batches, {}, seed, &losses[seed - 1]);
    return losses;
  };
  const auto mean = [](const std::vector<double>& losses) {
    return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  };
  const std::vector<double> full = losses_of_seeds("off");
  const auto [least, most] = std::ranges::minmax(full);
  for (const char* amp : {"fp16", "bf16"}) {
    const std::vector<double> half = losses_of_seeds(amp);
    EXPECT_LE(std::abs(mean(half) - mean(full)), most - least)
        << fmt::format("{}: {}, fp32: {}", amp, fmt::join(half, " "), fmt::join(full, " "));
  }
}

}  // namespace
}  // namespace reelgrad
