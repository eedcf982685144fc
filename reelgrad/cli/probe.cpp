// `reelgrad probe NAME…`: what the doctor has done in a process of its own, because it may crash or hang
// (doctor/card/probe_child.h). One line of JSON on stdout.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/doctor/card/probe_child.h"
#include "reelgrad/doctor/card/trial.h"
#include "reelgrad/doctor/facts_json.h"
#include "reelgrad/engine/engine.h"

namespace reelgrad::cli {
namespace {

// An engine that cannot be opened is a finding of its own, no failed trial.
TrialFacts engine_trial(const std::string& uuid) {
  Engine* engine = nullptr;
  try {
    engine = &open_engine();
  } catch (const Error&) {
    return {};
  }
  TrialFigures figures;
  const Status status = engine->try_card(uuid, figures);
  return {.engine = status.ok ? Outcome::ok : Outcome::failed,
          .error = status.message,
          .half_matmul_tflops = figures.half_matmul_tflops,
          .half_convolution_tflops = figures.half_convolution_tflops};
}

// Starts a Python.
std::string vapoursynth_answer() {
  const VapourSynthVersions versions = vapoursynth_versions();
  const VapourSynthFacts facts{.outcome = versions.core.empty() ? Outcome::failed : Outcome::ok,
                               .core = versions.core,
                               .api = versions.api,
                               .vsscript = versions.vsscript,
                               .python = versions.python,
                               .plugins = versions.plugins,
                               .source_plugins = versions.source_plugins,
                               .error = versions.error};
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string answer(const std::vector<std::string>& probe) {
  if (probe[0] == "engine-trial" && probe.size() == 2) return trial_answer(probe[1], engine_trial(probe[1]));
  if (probe[0] == "vapoursynth" && probe.size() == 1) return vapoursynth_answer();
  const std::string text = run_probe(probe);
  if (text.empty()) fail_usage(fmt::format("there is no probe \"{}\"", join(probe, " ")));
  return text;
}

}  // namespace

void add_probe(CLI::App& app) {
  auto probe = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("probe", "For reelgrad doctor: one probe, in a process of its own");
  command->group("");  // none that --help lists
  command->add_option("probe", *probe, "Its name and arguments")->required();
  command->callback([probe] { fmt::print("{}\n", answer(*probe)); });
}

}  // namespace reelgrad::cli
