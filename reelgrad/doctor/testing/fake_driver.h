// For tests: driver libraries that answer as told (testdata/fake_*.cpp), opened by a child, doctor_probe.
#pragma once
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "reelgrad/doctor/card/probe_child.h"
#include "reelgrad/doctor/facts_json.h"

namespace reelgrad::test {

// Without "REELGRAD_FAKE_": {{"CUDA_INIT", "999"}}.
using FakeAnswers = std::map<std::string, std::string>;

// bare: libraries that have next to no functions.
enum class FakeDriver { whole, bare };

inline std::map<std::string, std::string> fake_environment(const FakeAnswers& answers,
                                                           FakeDriver driver = FakeDriver::whole) {
  std::map<std::string, std::string> environment{
      {"LD_LIBRARY_PATH", driver == FakeDriver::whole ? REELGRAD_TEST_FAKE_DRIVER : REELGRAD_TEST_BARE_DRIVER}};
  for (const auto& [name, value] : answers) environment["REELGRAD_FAKE_" + name] = value;
  return environment;
}

inline ProbeAnswer ask_fake(const std::vector<std::string>& probe, const FakeAnswers& answers = {},
                            FakeDriver driver = FakeDriver::whole,
                            std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : fake_environment(answers, driver)) environment.push_back(name + "=" + value);
  return ask_child(REELGRAD_TEST_PROBE, probe, limit, environment);
}

// The facts of the probe "driver", which must answer.
inline Facts fake_facts(const FakeAnswers& answers = {}, FakeDriver driver = FakeDriver::whole) {
  const ProbeAnswer answer = ask_fake({"driver"}, answers, driver);
  if (answer.outcome != Outcome::ok) throw std::runtime_error("no answer: " + answer.error);
  const auto told = nlohmann::json::parse(answer.json);
  Facts facts;
  facts.driver = told.at("driver").get<DriverFacts>();
  facts.devices = told.at("devices").get<std::vector<DeviceFacts>>();
  return facts;
}

}  // namespace reelgrad::test
