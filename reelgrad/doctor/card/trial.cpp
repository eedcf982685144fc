#include "reelgrad/doctor/card/trial.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "reelgrad/doctor/card/nvml.h"
#include "reelgrad/doctor/card/probe_child.h"
#include "reelgrad/doctor/facts_json.h"

namespace reelgrad {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCardLimit{10'000}, kDriverLimit{5'000};
constexpr std::int64_t kNeededMb = 1024;  // a context with PyTorch's libraries, and what is computed

// Reasons that a card in order does not give, also when it works hard.
const std::set<std::string> kUnusualReasons{"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown",
                                            "hw_power_brake_slowdown"};

bool is_promising(const DeviceFacts& device) {
  const bool taken = device.compute_mode.starts_with("exclusive") && !device.processes.empty();
  const bool full = device.memory_free_mb >= 0 && device.memory_free_mb < kNeededMb;
  return !device.uuid.empty() && device.compute_mode != "prohibited" && !taken && !full;
}

void take_from_load(const DeviceFacts& under_load, DeviceFacts& device) {
  device.pcie_generation = std::max(device.pcie_generation, under_load.pcie_generation);
  device.pcie_width = std::max(device.pcie_width, under_load.pcie_width);
  device.clock_mhz = std::max(device.clock_mhz, under_load.clock_mhz);
  for (const std::string& reason : under_load.throttle_reasons) {
    const auto& known = device.throttle_reasons;
    const bool listed = std::find(known.begin(), known.end(), reason) != known.end();
    if (!listed && kUnusualReasons.contains(reason)) device.throttle_reasons.push_back(reason);
  }
}

void merge_driver(const TrialFacts& part, TrialFacts& whole) {
  whole.driver = part.driver;
  whole.to_card_gbs = part.to_card_gbs;
  whole.from_card_gbs = part.from_card_gbs;
  whole.card_memory_gbs = part.card_memory_gbs;
}

void merge_engine(const TrialFacts& part, TrialFacts& whole) {
  whole.engine = part.engine;
  whole.half_matmul_tflops = part.half_matmul_tflops;
  whole.half_convolution_tflops = part.half_convolution_tflops;
}

// One part of a card's trial.
struct Part {
  const char* probe;
  Outcome TrialFacts::*outcome;
  void (*merge)(const TrialFacts& part, TrialFacts& whole);
};
constexpr Part kDriverPart{"trial", &TrialFacts::driver, merge_driver};
constexpr Part kEnginePart{"engine-trial", &TrialFacts::engine, merge_engine};

void run_part(const Part& part, DeviceFacts& device, const ProbeOptions& options, milliseconds limit) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  const ProbeAnswer answer = ask_child(options.program, {part.probe, device.uuid}, limit, environment);
  if (answer.outcome != Outcome::ok) {
    device.trial.*part.outcome = answer.outcome;
    device.trial.error = answer.error;
    return;
  }
  try {
    const json told = json::parse(answer.json);
    const auto trial = told.at("trial").get<TrialFacts>();
    part.merge(trial, device.trial);
    if (device.trial.error.empty()) device.trial.error = trial.error;
    take_from_load(told.at("under_load").get<DeviceFacts>(), device);
  } catch (const json::exception& error) {
    device.trial.*part.outcome = Outcome::failed;
    device.trial.error = error.what();
  }
}

}  // namespace

std::string trial_answer(const std::string& uuid, const TrialFacts& trial) {
  DeviceFacts under_load{.uuid = uuid};
  Nvml().describe(under_load);
  const json answer{{"trial", trial}, {"under_load", under_load}};
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

void try_cards(Facts& facts, const ProbeOptions& options) {
  struct Passed {
    DeviceFacts& device;
    milliseconds left;
  };
  std::vector<Passed> passed;
  // One card after the other, with nothing beside: they share the host's memory and often the way to it.
  for (DeviceFacts& device : facts.devices) {
    if (!is_promising(device)) continue;
    const auto start = Clock::now();
    run_part(kDriverPart, device, options, kDriverLimit);
    const auto taken = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    if (device.trial.driver == Outcome::ok) passed.push_back({device, kCardLimit - taken});
  }
  std::vector<std::future<void>> engine_parts;
  for (const Passed& card : passed) {
    engine_parts.push_back(
        std::async(std::launch::async, [&card, &options] { run_part(kEnginePart, card.device, options, card.left); }));
  }
  for (std::future<void>& part : engine_parts) part.get();
}

}  // namespace reelgrad
