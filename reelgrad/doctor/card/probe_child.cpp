#include "reelgrad/doctor/card/probe_child.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/doctor/card/child_words.h"
#include "reelgrad/doctor/card/driver.h"
#include "reelgrad/doctor/card/driver_trial.h"
#include "reelgrad/doctor/card/trial.h"
#include "reelgrad/doctor/facts_json.h"
#include "reelgrad/doctor/probes/system_children.h"
#include "reelgrad/doctor/torch/torch_install.h"

namespace reelgrad {
namespace {

using nlohmann::json;

constexpr int kKilledBySignal = 128;  // and the signal's number
constexpr int kUnknownExitCode = -1;

// Libraries may print lines of their own before it.
ProbeAnswer answer_in(const ProcessResult& result) {
  const std::string line = last_line(result.out);
  if (line.starts_with('{') && json::accept(line)) return {.outcome = Outcome::ok, .json = line};
  return {.outcome = Outcome::failed, .error = "it printed no JSON"};
}

ProbeAnswer judge(const ProcessResult& result, std::chrono::milliseconds limit) {
  if (result.timed_out) {
    const std::string error = fmt::format("no answer within {:g} s", static_cast<double>(limit.count()) / 1000);
    return {.outcome = Outcome::timed_out, .error = error};
  }
  // A host that ignores SIGCHLD hides how the child ended: a whole answer is enough.
  if (result.exit_code == 0 || result.exit_code == kUnknownExitCode) return answer_in(result);
  if (result.exit_code > kKilledBySignal)
    return {.outcome = Outcome::crashed, .error = signal_text(result.exit_code - kKilledBySignal)};
  std::string error = last_line(result.err);
  if (error.empty()) error = fmt::format("exit status {}", result.exit_code);
  return {.outcome = Outcome::failed, .error = error};
}

// Names of processes and cards are whatever bytes they are.
std::string line_of(const json& answer) {
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string driver_answer() {
  Facts facts;
  probe_driver(facts);
  return line_of({{"driver", facts.driver}, {"devices", facts.devices}});
}

void leave_no_core_file() {
  const rlimit none{};
  ::setrlimit(RLIMIT_CORE, &none);
}

}  // namespace

ProbeAnswer ask_child(const std::filesystem::path& program, const std::vector<std::string>& probe,
                      std::chrono::milliseconds time_limit, const std::vector<std::string>& environment) {
  std::vector<std::string> argv{program.string(), "probe"};
  argv.insert(argv.end(), probe.begin(), probe.end());
  try {
    return judge(run_process(argv, time_limit, environment), time_limit);
  } catch (const Error& error) {
    return {.outcome = Outcome::failed, .error = error.what()};
  }
}

std::string run_probe(const std::vector<std::string>& probe) {
  const std::string name = probe.empty() ? "" : probe[0];
  leave_no_core_file();
  if (name == "driver" && probe.size() == 1) return driver_answer();
  if (name == "torch" && probe.size() == 2) return line_of(probe_torch_opening(probe[1]));
  if (name == "trial" && probe.size() == 2) return trial_answer(probe[1], try_driver(probe[1]));
  return run_system_probe(probe);
}

}  // namespace reelgrad
