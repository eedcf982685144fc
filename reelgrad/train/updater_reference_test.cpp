// Every optimizer with every schedule, clipping, accumulation and moving average, against PyTorch in float64: 1134
// combinations. PyTorch's side is computed by the first test that wants it, and kept in the build folder.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <span>
#include <sstream>
#include <thread>
#include <tuple>

#include "reelgrad/base/error.h"
#include "reelgrad/base/lock_file.h"
#include "reelgrad/train/reference_support.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

using test::ReferenceCase;

constexpr std::int64_t kSteps = 100;

using Choice = std::pair<const char*, std::function<void(Config&)>>;

const std::vector<Choice>& optimizers() {
  const auto named = [](const char* name, double lr) {
    return [=](Config& c) {
      c.optimizer.name = name;
      c.optimizer.lr = lr;
    };
  };
  const auto sgd = [](double lr, double momentum, bool nesterov) {
    return [=](Config& c) {
      c.optimizer.name = "sgd";
      c.optimizer.lr = lr;
      c.optimizer.momentum = momentum;
      c.optimizer.nesterov = nesterov;
    };
  };
  static const std::vector<Choice> kAll{{"adamw", named("adamw", 2e-3)},
                                        {"adam", named("adam", 2e-3)},
                                        {"sgd", sgd(0.1, 0, false)},
                                        {"sgd_momentum", sgd(0.02, 0.9, false)},
                                        {"sgd_nesterov", sgd(0.02, 0.9, true)},
                                        {"lion", named("lion", 3e-4)},
                                        {"schedule_free_adamw", named("schedule_free_adamw", 4e-3)}};
  return kAll;
}

const std::vector<Choice>& schedules() {
  const auto set = [](ScheduleConfig schedule, double end = 0) {
    return [=](Config& c) {
      c.schedule = schedule;
      c.schedule.min_lr = end * c.optimizer.lr;
    };
  };
  static const std::vector<Choice> kAll{
      {"constant", set({.name = "constant"})},
      {"constant_warmup", set({.name = "constant", .warmup_steps = 15})},
      {"multistep", set({.name = "multistep", .milestones = {30, 31, 70}, .gamma = 0.4})},
      {"multistep_warmup", set({.name = "multistep", .warmup_steps = 20, .milestones = {10, 60}, .gamma = 0.5})},
      {"cosine", set({.name = "cosine"}, 0.1)},
      {"cosine_warmup", set({.name = "cosine", .warmup_steps = 10})},
      {"linear", set({.name = "linear"}, 0.05)},
      {"linear_warmup", set({.name = "linear", .warmup_steps = 25}, 0.2)},
      {"onecycle", set({.name = "onecycle", .rise = 0.25, .start_divisor = 10, .end_divisor = 100})}};
  return kAll;
}

const std::vector<Choice>& clippings() {
  static const std::vector<Choice> kAll{{"none", [](Config&) {}},
                                        {"norm", [](Config& c) { c.optimizer.clip_norm = 0.025; }},
                                        {"value", [](Config& c) { c.optimizer.clip_value = 0.004; }}};
  return kAll;
}

const std::map<std::string, EmaConfig>& moving_averages() {
  static const std::map<std::string, EmaConfig> kAll{{"plain", {.decay = 0.95, .warmup = false}},
                                                     {"warmup_every_3", {.decay = 0.9, .warmup = true, .every = 3}}};
  return kAll;
}

ReferenceCase product_case(const Choice& optimizer, const Choice& schedule, const Choice& clipping, int accumulate) {
  ReferenceCase made{.name = fmt::format("{}-{}-{}-{}", optimizer.first, schedule.first, clipping.first, accumulate),
                     .config = test::small_config(),
                     .loss = "mse",
                     .averages = moving_averages()};
  made.config.run.steps = kSteps;
  made.config.optimizer.weight_decay = 0.02;
  made.config.optimizer.accumulate = accumulate;
  optimizer.second(made.config);
  schedule.second(made.config);
  clipping.second(made.config);
  return made;
}

std::vector<ReferenceCase> whole_product() {
  std::vector<ReferenceCase> cases;
  for (const Choice& optimizer : optimizers())
    for (const Choice& schedule : schedules())
      for (const Choice& clipping : clippings())
        for (const int accumulate : {1, 2}) cases.push_back(product_case(optimizer, schedule, clipping, accumulate));
  return cases;
}

// --- PyTorch's side, kept ---

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Held by one test program at a time; the others wait for its answers.
LockFile wait_for_lock(const std::filesystem::path& file) {
  while (true) {
    try {
      return LockFile(file, "PyTorch's side of the comparison");
    } catch (const Error&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

// The folder with PyTorch's answers. "key" is written last and holds what they are answers to.
std::filesystem::path product_reference() {
  const std::filesystem::path folder = REELGRAD_TEST_CACHE "/update_reference", key_file = folder / "key";
  const std::string request = test::request_text(whole_product());
  const std::string key = request + text_of(test::reference_script());
  if (text_of(key_file) == key) return folder;
  std::filesystem::create_directories(folder);
  const LockFile lock = wait_for_lock(folder / "lock");
  if (text_of(key_file) == key) return folder;
  std::filesystem::remove(key_file);
  test::run_pytorch(folder, request);
  if (!testing::Test::HasFatalFailure()) std::ofstream(key_file) << key;
  return folder;
}

// --- Our side ---

class UpdateReference : public testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // the pictures are too small to share
};

// The mean loss of one step's micro-batches, whose gradients it leaves in the network.
double backward(const Config& config, Network& network, const Updater& updater, test::FixedBatches& batches,
                std::int64_t step) {
  double total = 0;
  for (int part = 0; part < config.optimizer.accumulate; ++part) {
    const Batch batch = batches.next(step, part * config.data.batch, config.data.batch);
    const torch::Tensor loss =
        (network.forward(batch.input) - batch.target).square().mean() / config.optimizer.accumulate;
    updater.scaled(loss).backward();
    total += loss.item<double>();
  }
  return total;
}

// Every loss and learning rate, the weights and the averaged ones after the last step, on the CPU.
struct Trajectory {
  std::vector<double> losses, rates;
  NamedTensors raw, evaluation;
};

// `average`: empty for none.
Trajectory train(const ReferenceCase& reference, const std::string& average, torch::Device device) {
  const Config& config = reference.config;
  const auto network = test::small_network(1, torch::kFloat64);
  network->to(device);
  Updater updater({.optimizer = config.optimizer,
                   .schedule = config.schedule,
                   .ema = average.empty() ? EmaConfig{.decay = 0} : reference.averages.at(average),
                   .steps = config.run.steps},
                  *network);
  test::FixedBatches batches(test::reference_inputs(torch::kFloat64).to(device),
                             test::reference_targets(torch::kFloat64).to(device),
                             config.data.batch * config.optimizer.accumulate);
  Trajectory trajectory;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    updater.zero_grad();
    trajectory.losses.push_back(backward(config, *network, updater, batches, step));
    updater.step();
    trajectory.rates.push_back(Updater::read(updater.counters().cpu()).learning_rate);
  }
  const auto on_host = [](NamedTensors tensors) {
    for (auto& [name, tensor] : tensors) tensor = tensor.detach().cpu();
    return tensors;
  };
  trajectory.raw = on_host(state_dict(*network));
  trajectory.evaluation = on_host(updater.evaluation_weights());
  return trajectory;
}

void expect_curves(const Trajectory& ours, std::span<const double> losses, std::span<const double> rates, double lr) {
  for (std::size_t step = 0; step < kSteps; ++step) {
    ASSERT_LE(std::abs(ours.losses[step] - losses[step]), 1e-9 * losses[step]) << "step " << step;
    ASSERT_LE(std::abs(ours.rates[step] - rates[step]), 1e-12 * lr) << "step " << step;
  }
}

using Expected = std::map<std::string, torch::Tensor>;

void expect_weights(const NamedTensors& weights, const Expected& expected, const std::string& kind) {
  for (const auto& [name, tensor] : weights) {
    EXPECT_LE(test::relative_difference(tensor, expected.at(kind + "." + name)), 1e-9) << kind << " " << name;
  }
}

std::span<const double> numbers(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

void expect_pytorchs(const ReferenceCase& reference, const std::string& average, const Expected& expected) {
  SCOPED_TRACE(fmt::format("accumulate {}, average \"{}\"", reference.config.optimizer.accumulate, average));
  const OptimizerConfig& optimizer = reference.config.optimizer;
  const Trajectory ours = train(reference, average, torch::kCPU);
  expect_curves(ours, numbers(expected.at("losses")), numbers(expected.at("rates")), optimizer.lr);
  expect_weights(ours.raw, expected, "raw");
  const bool schedule_free = optimizer.name == "schedule_free_adamw";
  expect_weights(ours.evaluation, expected, !average.empty() ? average : schedule_free ? "x" : "raw");
}

TEST_P(UpdateReference, IsPyTorchs) {
  const auto [optimizer, schedule, clipping] = GetParam();
  std::filesystem::path folder;
  ASSERT_NO_FATAL_FAILURE(folder = product_reference());
  for (const int accumulate : {1, 2}) {
    const ReferenceCase reference =
        product_case(optimizers().at(optimizer), schedules().at(schedule), clippings().at(clipping), accumulate);
    const Expected expected = test::read_reference(folder, reference.name + ".out");
    for (const char* average : {"", "plain", "warmup_every_3"}) expect_pytorchs(reference, average, expected);
  }
}

std::string product_name(const testing::TestParamInfo<std::tuple<int, int, int>>& info) {
  const auto [optimizer, schedule, clipping] = info.param;
  return fmt::format("{}_with_{}_clip_{}", optimizers().at(optimizer).first, schedules().at(schedule).first,
                     clippings().at(clipping).first);
}

INSTANTIATE_TEST_SUITE_P(Product, UpdateReference,
                         testing::Combine(testing::Range(0, 7), testing::Range(0, 9), testing::Range(0, 3)),
                         product_name);

// What the CPU does is PyTorch's, as above; a card does the same. Every optimizer with every schedule, and of the rest
// each choice many times.
class UpdateReferenceGpu : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

void expect_equal_weights(const NamedTensors& ours, const NamedTensors& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_LE(test::relative_difference(ours[i].second, theirs[i].second), 1e-9) << ours[i].first;
}

TEST_P(UpdateReferenceGpu, FollowsTheCpu) {
  if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  const auto [optimizer, schedule] = GetParam();
  const int mixed = optimizer + schedule;
  const ReferenceCase reference =
      product_case(optimizers().at(optimizer), schedules().at(schedule), clippings().at(mixed % 3), 1 + mixed % 2);
  const char* average = std::array{"", "plain", "warmup_every_3"}.at(static_cast<std::size_t>(schedule) % 3);
  const Trajectory host = train(reference, average, torch::kCPU), card = train(reference, average, {torch::kCUDA, 0});
  expect_curves(card, host.losses, host.rates, reference.config.optimizer.lr);
  expect_equal_weights(card.raw, host.raw);
  expect_equal_weights(card.evaluation, host.evaluation);
}

std::string pair_name(const testing::TestParamInfo<std::tuple<int, int>>& info) {
  const auto [optimizer, schedule] = info.param;
  return fmt::format("{}_with_{}", optimizers().at(optimizer).first, schedules().at(schedule).first);
}

INSTANTIATE_TEST_SUITE_P(Product, UpdateReferenceGpu, testing::Combine(testing::Range(0, 7), testing::Range(0, 9)),
                         pair_name);

}  // namespace
}  // namespace reelgrad
