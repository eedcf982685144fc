#include "reelgrad/train/updater.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "reelgrad/base/error.h"
#include "reelgrad/train/snapshot_state.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Three parameters of different sizes, the second channels-last, that tests give gradients by hand.
class Weights : public torch::nn::Module {
 public:
  explicit Weights(torch::Device device = torch::kCPU, torch::ScalarType type = torch::kFloat32) {
    auto generator = at::detail::createCPUGenerator(7);
    const auto make = [&](torch::IntArrayRef sizes) {
      return torch::randn(sizes, generator, torch::kFloat64).to(device, type);
    };
    const auto body = register_module("body", std::make_shared<torch::nn::Module>());
    const auto head = register_module("head", std::make_shared<torch::nn::Module>());
    a = body->register_parameter("a", make({2500}));
    b = body->register_parameter("b", make({3, 4, 5, 6}).contiguous(torch::MemoryFormat::ChannelsLast));
    c = head->register_parameter("c", make({1}));
    register_buffer("seen", torch::zeros({1}, device));
  }

  // The same for the same step, wherever it is; magnitudes from 2^-8 to 2^8.
  void give_gradients(std::int64_t step, double scale = 1) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + step));
    for (torch::Tensor& parameter : parameters()) {
      const torch::Tensor size = torch::rand(parameter.sizes(), generator, torch::kFloat64) * 16 - 8;
      const torch::Tensor values = torch::randn(parameter.sizes(), generator, torch::kFloat64) * size.exp2() * scale;
      parameter.mutable_grad() = torch::empty_like(parameter.detach()).copy_(values);
    }
  }

  torch::Tensor a, b, c;
};

NamedTensors copies(const NamedTensors& tensors) {
  NamedTensors made;
  put_state(made, "", tensors);
  return made;
}

NamedTensors weights_of(const torch::nn::Module& network) {
  return copies(state_dict(network));
}

UpdateCounters counters_of(const Updater& updater) {
  return Updater::read(updater.counters().cpu());
}

Updater::Options plain_sgd(double lr = 1) {
  return {.optimizer = {.name = "sgd", .lr = lr, .momentum = 0}, .ema = {.decay = 0}, .steps = 100};
}

void set_gradient(torch::Tensor parameter, double value) {
  parameter.mutable_grad() = torch::full_like(parameter.detach(), value);
}

// --- Clipping ---

// Ten elements of gradient 3 and one of gradient 4 in the norm: sqrt(90 + 16).
TEST(UpdaterClip, ByNormTakesAllParametersTogether) {
  torch::nn::Module network;
  torch::Tensor p = network.register_parameter("p", torch::zeros({10}, torch::kFloat64));
  torch::Tensor q = network.register_parameter("q", torch::zeros({1}, torch::kFloat64));
  Updater::Options options = plain_sgd();
  options.optimizer.clip_norm = 2;
  Updater updater(options, network);
  set_gradient(p, 3);
  set_gradient(q, -4);
  updater.step();
  const double factor = 2 / (std::sqrt(106.0) + 1e-6);
  EXPECT_NEAR(p[9].item<double>(), -3 * factor, 1e-14);
  EXPECT_NEAR(q[0].item<double>(), 4 * factor, 1e-14);
  set_gradient(p, 0);
  set_gradient(q, 1);
  updater.step();  // short enough
  EXPECT_NEAR(q[0].item<double>(), 4 * factor - 1, 1e-14);
}

TEST(UpdaterClip, ByValueComesAfterTheNorm) {
  torch::nn::Module network;
  torch::Tensor p = network.register_parameter("p", torch::zeros({2}, torch::kFloat64));
  Updater::Options options = plain_sgd();
  options.optimizer.clip_norm = 5;
  options.optimizer.clip_value = 3.5;
  Updater updater(options, network);
  p.mutable_grad() = torch::tensor({6.0, -8.0}, torch::kFloat64);  // by norm: 3, -4
  updater.step();
  EXPECT_NEAR(p[0].item<double>(), -3, 1e-6);
  EXPECT_EQ(p[1].item<double>(), 3.5);
}

TEST(UpdaterClip, WithoutLossScalingWhatIsNotFiniteGoesIntoTheWeights) {
  torch::nn::Module network;
  torch::Tensor p = network.register_parameter("p", torch::zeros({2}));
  Updater::Options options = plain_sgd();
  options.optimizer.clip_value = 1;
  Updater updater(options, network);
  p.mutable_grad() = torch::tensor({NAN, 0.5f});
  updater.step();
  EXPECT_TRUE(std::isnan(p[0].item<float>()));
  EXPECT_EQ(p[1].item<float>(), -0.5f);
  EXPECT_EQ(counters_of(updater).skipped, 0);
}

TEST(Updater, LeavesParametersWithoutAGradientAlone) {
  Weights network;
  Updater::Options options{.optimizer = {.weight_decay = 0.1}, .ema = {.decay = 0}, .steps = 10};
  options.optimizer.clip_norm = 1;
  Updater updater(options, network);
  network.give_gradients(0);
  network.b.mutable_grad().reset();
  const NamedTensors before = weights_of(network);
  updater.step();
  EXPECT_FALSE(torch::equal(network.a, before[0].second));
  EXPECT_TRUE(torch::equal(network.b, before[1].second));
}

TEST(Updater, TakesGradientsInAnotherMemoryOrder) {
  Weights network, other;
  Updater updater(plain_sgd(), network), other_updater(plain_sgd(), other);
  network.give_gradients(0);
  other.give_gradients(0);
  other.b.mutable_grad() = other.b.grad().contiguous();
  updater.step();
  other_updater.step();
  test::expect_bit_equal(weights_of(network), weights_of(other));
}

TEST(Updater, GivesTheSameBitsAtAnyThreadCount) {
  const auto train = [](int threads) {
    at::set_num_threads(threads);
    torch::nn::Module network;
    torch::Tensor p = network.register_parameter("p", torch::ones({100'000}));
    Updater::Options options{.optimizer = {.clip_norm = 0.5}, .steps = 10};
    Updater updater(options, network);
    for (int step = 0; step < 3; ++step) {
      p.mutable_grad() = torch::randn({100'000}, at::detail::createCPUGenerator(9));
      updater.step();
    }
    at::set_num_threads(1);
    return copies(updater.state());
  };
  test::expect_bit_equal(train(1), train(3));
}

// --- Parameter groups ---

TEST(UpdaterGroups, HaveRatesAndDecaysOfTheirOwn) {
  Weights network;
  Updater::Options options = plain_sgd(0.5);
  options.optimizer.weight_decay = 0.2;
  options.optimizer.groups = {{.match = "*.b", .lr_scale = 0.1}, {.match = "body.*", .weight_decay = 0}};
  options.optimizer.no_decay = {"head.?"};
  Updater updater(options, network);
  const NamedTensors before = weights_of(network);
  for (torch::Tensor& parameter : network.parameters()) set_gradient(parameter, 1);
  updater.step();
  const auto expect_rate = [&](int i, const torch::Tensor& after, double rate, double decay) {
    const torch::Tensor expected = before[i].second - rate * (1 + decay * before[i].second);
    EXPECT_TRUE(torch::allclose(after, expected, 1e-6, 1e-7)) << before[i].first;
  };
  expect_rate(0, network.a, 0.5, 0);
  expect_rate(1, network.b, 0.05, 0.2);
  expect_rate(2, network.c, 0.5, 0);
}

TEST(UpdaterGroups, AreFrozenByARateOfZero) {
  Weights network;
  Updater::Options options = plain_sgd();
  options.optimizer.groups = {{.match = "body.*", .lr_scale = 0}};
  options.ema = {.decay = 0.5};
  Updater updater(options, network);
  EXPECT_FALSE(network.a.requires_grad());
  EXPECT_TRUE(network.c.requires_grad());
  const NamedTensors before = weights_of(network);
  network.give_gradients(0);
  updater.step();
  EXPECT_TRUE(torch::equal(network.a, before[0].second));
  EXPECT_FALSE(torch::equal(network.c, before[2].second));
  EXPECT_EQ(updater.evaluation_weights().size(), 4u);  // the frozen ones and the buffer too
}

std::string usage_error(const Updater::Options& options) {
  Weights network;
  try {
    Updater updater(options, network);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(UpdaterGroups, APatternThatMatchesNothingIsRefused) {
  Updater::Options options = plain_sgd();
  options.optimizer.groups = {{.match = "body.*"}, {.match = "haed.*"}};
  EXPECT_THAT(usage_error(options),
              AllOf(HasSubstr("optimizer.groups[1].match"), HasSubstr("\"haed.*\""), HasSubstr("\"head.c\"")));
  options.optimizer.groups = {};
  options.optimizer.no_decay = {"*.bias"};
  EXPECT_THAT(usage_error(options), AllOf(HasSubstr("optimizer.no_decay"), HasSubstr("\"*.bias\"")));
  options.optimizer.no_decay = {};
  options.optimizer.groups = {{.match = "*", .lr_scale = 0}};
  EXPECT_THAT(usage_error(options), HasSubstr("no parameter"));
}

TEST(UpdaterGroups, AnUnknownOptimizerIsRefused) {
  Updater::Options options = plain_sgd();
  options.optimizer.name = "adamv";
  EXPECT_THAT(usage_error(options), AllOf(HasSubstr("\"adamv\""), HasSubstr("lion")));
}

// --- Averages ---

TEST(UpdaterAverage, WarmsUpAndIsMovedEverySecondUpdate) {
  torch::nn::Module network;
  torch::Tensor p = network.register_parameter("p", torch::zeros({1}, torch::kFloat64));
  Updater::Options options = plain_sgd();
  options.ema = {.decay = 0.5, .warmup = true, .every = 2};
  Updater updater(options, network);
  double average = 0;
  for (int update = 1; update <= 20; ++update) {
    set_gradient(p, -1);  // p is the number of updates
    updater.step();
    const double decay = std::min(0.5, (1.0 + update) / (10.0 + update));
    if (update % 2 == 0) average += (1 - decay) * (update - average);
    EXPECT_NEAR(updater.evaluation_weights().front().second.item<double>(), average, 1e-12) << update;
  }
}

TEST(UpdaterAverage, IsInTheNetworkForAWhileAndTheRawWeightsAreBack) {
  for (const char* optimizer : {"adamw", "schedule_free_adamw"}) {
    Weights network;
    Updater::Options options{.optimizer = {.name = optimizer, .lr = 0.1}, .steps = 10};
    if (options.optimizer.name == "schedule_free_adamw") options.ema.decay = 0;
    Updater updater(options, network);
    EXPECT_TRUE(updater.averages());
    for (int step = 0; step < 3; ++step) {
      network.give_gradients(step);
      updater.step();
    }
    const NamedTensors raw = weights_of(network), evaluated = copies(updater.evaluation_weights());
    const void* storage = network.a.const_data_ptr();
    {
      const Updater::EvaluationWeights averages(updater);
      test::expect_bit_equal(weights_of(network), evaluated);
      EXPECT_FALSE(torch::equal(network.a, raw.front().second));
    }
    test::expect_bit_equal(weights_of(network), raw);
    EXPECT_EQ(network.a.const_data_ptr(), storage);
  }
}

TEST(UpdaterAverage, WithoutOneTheWeightsAreEvaluated) {
  Weights network;
  Updater updater(plain_sgd(), network);
  EXPECT_FALSE(updater.averages());
  const Updater::EvaluationWeights weights(updater);
  test::expect_bit_equal(updater.evaluation_weights(), state_dict(network));
}

// --- Loss scaling ---

Updater::Options scaled_adam(double initial_scale = 65536) {
  return {.optimizer = {.lr = 0.01},
          .schedule = {.name = "cosine", .warmup_steps = 3},
          .ema = {.decay = 0.9},
          .steps = 40,
          .loss_scaling = true,
          .initial_scale = initial_scale};
}

TEST(UpdaterScale, MultipliesTheLossInItsOwnPrecision) {
  Weights network;
  const Updater scaling(scaled_adam(1024), network), plain(plain_sgd(), network);
  EXPECT_EQ(scaling.scaled(torch::tensor(2.0f)).item<float>(), 2048);
  EXPECT_EQ(scaling.scaled(torch::tensor(2.0f)).scalar_type(), torch::kFloat32);
  const torch::Tensor loss = torch::tensor(2.0f);
  EXPECT_TRUE(plain.scaled(loss).is_same(loss));
}

// Field case C1: more than 20 skips in a row can be told from the counters, long before the scale is gone.
TEST(UpdaterScale, SkipsInARowAreCountedAndChangeNothing) {
  Weights network;
  Updater updater(scaled_adam(), network);
  network.give_gradients(0, 65536);
  updater.step();
  const NamedTensors before = weights_of(network), state_before = copies(updater.state());
  for (int i = 0; i < 21; ++i) {
    network.give_gradients(i);
    network.b.mutable_grad()[2][3][4][5] = i % 2 ? INFINITY : NAN;
    updater.step();
  }
  UpdateCounters counters = counters_of(updater);
  EXPECT_EQ(counters.skipped_in_a_row, 21);
  EXPECT_EQ(counters.skipped, 21);
  EXPECT_EQ(counters.updates, 1);
  EXPECT_EQ(counters.scale, 65536.0 / (1 << 21));
  test::expect_bit_equal(weights_of(network), before);
  for (const auto& [name, tensor] : updater.state()) {
    if (name.starts_with("scaler.")) continue;
    EXPECT_TRUE(torch::equal(tensor, *StateReader(state_before).find(name))) << name;
  }
  network.give_gradients(1, counters.scale);
  updater.step();
  counters = counters_of(updater);
  EXPECT_EQ(counters.skipped_in_a_row, 0);
  EXPECT_EQ(counters.updates, 2);
}

// Field case C4: a scale of 8192 with 1234 updates behind it is loaded as it was, and the steps that follow are those
// of the run that was never stopped.
TEST(UpdaterScale, IsResumed) {
  Weights unbroken, resumed;
  Updater first(scaled_adam(8192), unbroken), second(scaled_adam(), resumed);
  NamedTensors state = copies(first.state());
  for (auto& [name, tensor] : state) {
    if (name == "scaler.growth_tracker") tensor.fill_(1234);
  }
  first.load_state(state);
  unbroken.give_gradients(0, 8192);
  first.step();

  load_strict(resumed, weights_of(unbroken), "unbroken");
  second.load_state(copies(first.state()));
  EXPECT_EQ(counters_of(second).scale, 8192);
  EXPECT_EQ(StateReader(second.state()).find("scaler.growth_tracker")->item<double>(), 1235);
  for (int step = 1; step <= 10; ++step) {
    for (auto [network, updater] : {std::pair(&unbroken, &first), std::pair(&resumed, &second)}) {
      network->give_gradients(step, 8192);
      updater->step();
    }
    test::expect_bit_equal(weights_of(resumed), weights_of(unbroken));
  }
  test::expect_bit_equal(copies(second.state()), copies(first.state()));
  EXPECT_EQ(counters_of(second).learning_rate, counters_of(first).learning_rate);
}

TEST(UpdaterScale, StartsAfreshWhereTheCheckpointHasNone) {
  Weights network;
  Updater updater(scaled_adam(), network);
  updater.load_state(test::without(copies(updater.state()), "scaler."));
  EXPECT_EQ(counters_of(updater).scale, 65536);
  Updater::Options unscaled = scaled_adam();
  unscaled.loss_scaling = false;
  Updater other(unscaled, network);
  other.load_state(copies(updater.state()));  // fp16 to bf16
  EXPECT_EQ(counters_of(other).scale, 1);
}

// Checkpoints made before the counters moved together.
TEST(UpdaterState, OfOlderCheckpointsIsRead) {
  Weights network;
  Updater updater(scaled_adam(), network);
  NamedTensors state = test::without(test::without(copies(updater.state()), "scaler."), "optimizer.updates");
  state.emplace_back("optimizer.updates", torch::tensor(17.0f));
  state.emplace_back("scaler.scale", torch::tensor({512.0f}));
  state.emplace_back("scaler.growth_tracker", torch::tensor({3}, torch::kInt32));
  for (const char* name : {"scaler.updates", "scaler.skipped", "scaler.skipped_in_a_row"}) {
    state.emplace_back(name, torch::tensor({5}, torch::kInt64));
  }
  updater.load_state(state);
  const UpdateCounters counters = counters_of(updater);
  EXPECT_EQ(counters.updates, 17);
  EXPECT_EQ(counters.skipped, 5);
  EXPECT_EQ(counters.scale, 512);
}

TEST(UpdaterState, OfAnotherOptimizerIsRefused) {
  Weights network;
  Updater adam(scaled_adam(), network);
  Updater::Options options = plain_sgd();
  options.optimizer.momentum = 0.9;
  Updater sgd(options, network);
  try {
    sgd.load_state(copies(adam.state()));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("optimizer.momentum_buffer.body.a"));
  }
}

// Fine-tuning: first with some parameters frozen, then with all.
TEST(UpdaterState, OfParametersThatWereFrozenBeginsAfresh) {
  Weights network, other_network;
  Updater::Options options = scaled_adam();
  Updater all(options, other_network);
  NamedTensors state = copies(all.state());
  const auto of_one = [](const auto& item) {
    return item.first.starts_with("optimizer.exp_avg") && item.first.ends_with(".body.a");
  };
  ASSERT_EQ(std::erase_if(state, of_one), 2U);
  for (auto& [name, tensor] : state)
    if (name.starts_with("optimizer.exp_avg")) tensor.fill_(3);
  Updater updater(options, network);
  updater.load_state(state);
  for (const auto& [name, tensor] : updater.state()) {
    if (!name.starts_with("optimizer.exp_avg")) continue;
    EXPECT_EQ(tensor.max().item<double>(), name.ends_with(".body.a") ? 0 : 3) << name;
  }
}

// Field case F5: raw weights, averaged ones and the count are kept apart, and neither saving nor loading mixes them.
TEST(UpdaterState, KeepsRawAndAveragedWeightsApart) {
  Weights network, other;
  Updater::Options options = scaled_adam();
  options.loss_scaling = false;
  Updater updater(options, network), loaded(options, other);
  for (int step = 0; step < 4; ++step) {
    network.give_gradients(step);
    updater.step();
  }
  const NamedTensors raw = weights_of(network), average = copies(updater.evaluation_weights());
  const NamedTensors state = copies(updater.state());
  { const Updater::EvaluationWeights validated(updater); }
  test::expect_bit_equal(weights_of(network), raw);
  test::expect_bit_equal(copies(updater.evaluation_weights()), average);

  load_strict(other, raw, "a checkpoint");
  loaded.load_state(state);
  test::expect_bit_equal(weights_of(other), raw);
  test::expect_bit_equal(copies(loaded.evaluation_weights()), average);
  EXPECT_EQ(counters_of(loaded).updates, 4);

  // A run that had no average starts one from the weights that it has.
  loaded.load_state(test::without(state, "ema."));
  test::expect_bit_equal(copies(loaded.evaluation_weights()), raw);
}

TEST(UpdaterState, ALearningRateThatWasChangedCountsFromTheNextUpdate) {
  Weights network;
  Updater::Options options = plain_sgd(0.5);
  Updater first(options, network);
  network.give_gradients(0);
  first.step();
  options.optimizer.lr = 0.125;
  Updater second(options, network);
  second.load_state(copies(first.state()));
  network.give_gradients(1);
  second.step();
  EXPECT_EQ(counters_of(second).learning_rate, 0.125);
  EXPECT_EQ(counters_of(second).updates, 2);
}

// --- On a card ---

class UpdaterGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  }
  const torch::Device card_{torch::kCUDA, 0};
};

// One of every optimizer, with everything else on.
std::vector<Updater::Options> all_optimizers() {
  std::vector<Updater::Options> all;
  for (const char* name : {"adamw", "adam", "sgd", "lion", "schedule_free_adamw"}) {
    Updater::Options options = scaled_adam(64);
    options.optimizer.name = name;
    options.optimizer.lr = 1e-2;
    options.optimizer.weight_decay = 0.05;
    options.optimizer.nesterov = true;
    options.optimizer.clip_norm = 100;
    options.optimizer.clip_value = 20;
    options.optimizer.groups = {{.match = "*.b", .lr_scale = 0.3}};
    options.ema = {.decay = 0.9, .warmup = true, .every = 2};
    all.push_back(options);
  }
  return all;
}

// Ten steps of which the fourth is skipped, the last without a gradient for one parameter.
void run_ten_steps(Weights& network, Updater& updater) {
  for (int step = 0; step < 10; ++step) {
    network.give_gradients(step, counters_of(updater).scale);
    if (step == 3) network.a.mutable_grad()[2100] = INFINITY;
    if (step == 9) network.b.mutable_grad().reset();
    updater.step();
  }
}

void expect_close(const NamedTensors& a, const NamedTensors& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i].second, b[i].second, tolerance, tolerance)) << a[i].first;
  }
}

TEST_F(UpdaterGpuTest, FollowsTheCpu) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const Updater::Options& options : all_optimizers()) {
      SCOPED_TRACE(options.optimizer.name);
      Weights host(torch::kCPU, type), device(card_, type);
      Updater on_cpu(options, host), on_card(options, device);
      run_ten_steps(host, on_cpu);
      run_ten_steps(device, on_card);
      const double tolerance = type == torch::kFloat64 ? 1e-12 : 1e-6;
      expect_close(weights_of(device), weights_of(host), tolerance);
      expect_close(copies(on_card.state()), copies(on_cpu.state()), tolerance);
      EXPECT_EQ(counters_of(on_card).skipped, 1);
      EXPECT_EQ(counters_of(on_card).updates, 9);
      EXPECT_EQ(counters_of(on_card).scale, 32);
      EXPECT_NEAR(counters_of(on_card).learning_rate, counters_of(on_cpu).learning_rate, 1e-15);
    }
  }
}

TEST_F(UpdaterGpuTest, TakesMoreParametersThanOneLaunchDoes) {
  const auto train = [](torch::Device device) {
    torch::nn::Module network;
    for (int i = 0; i < 1000; ++i) network.register_parameter(fmt::format("p{}", i), torch::full({3}, 1.0 * i, device));
    for (torch::Tensor& parameter : network.parameters()) {
      parameter.mutable_grad() = torch::ones_like(parameter.detach());
    }
    Updater::Options options = plain_sgd();
    options.optimizer.clip_norm = std::sqrt(3000.0) / 2;
    Updater updater(options, network);
    updater.step();
    return weights_of(network);
  };
  const NamedTensors on_card = train(card_);
  test::expect_bit_equal(on_card, train(torch::kCPU));
  EXPECT_NEAR(on_card[999].second[2].item<float>(), 998.5, 1e-3);
}

// The parameters and their gradients of a step whose loss is scale * sum(weight * p), captured and replayed.
TEST_F(UpdaterGpuTest, ACapturedStepReplaysAsTheEagerOne) {
  for (const Updater::Options& options : all_optimizers()) {
    SCOPED_TRACE(options.optimizer.name);
    Weights eager(card_), captured(card_);
    Updater eager_updater(options, eager), captured_updater(options, captured);
    const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
    Weights source(card_);
    source.give_gradients(0);
    std::vector<torch::Tensor> factors;
    for (const torch::Tensor& parameter : source.parameters()) factors.push_back(parameter.grad().clone());
    const auto step = [&](Weights& network, Updater& updater) {
      updater.zero_grad();
      torch::Tensor loss = torch::zeros({}, card_);
      for (std::size_t i = 0; i < factors.size(); ++i)
        loss = loss + (factors[i] * network.parameters()[i].square()).sum();
      updater.scaled(loss).backward();
      updater.step();
    };
    for (int i = 0; i < 3; ++i) {
      step(eager, eager_updater);
      step(captured, captured_updater);
    }
    at::cuda::CUDAGraph graph;
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    step(captured, captured_updater);
    graph.capture_end();
    for (int i = 0; i < 20; ++i) {
      factors[0].mul_(i == 7 ? INFINITY : 1);  // a skipped step in a graph too
      step(eager, eager_updater);
      graph.replay();
      if (i == 7) factors[0].copy_(source.a.grad());
    }
    test::expect_bit_equal(weights_of(captured), weights_of(eager));
    test::expect_bit_equal(copies(captured_updater.state()), copies(eager_updater.state()));
    EXPECT_EQ(counters_of(captured_updater).updates, 22);
    EXPECT_EQ(counters_of(captured_updater).skipped, 1);
  }
}

}  // namespace
}  // namespace reelgrad
