#include "reelgrad/doctor/probes/probes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/doctor/card/probe_child.h"
#include "reelgrad/doctor/card/trial.h"
#include "reelgrad/doctor/facts_json.h"
#include "reelgrad/doctor/probes/device_nodes_probe.h"
#include "reelgrad/doctor/probes/kernel_module_probe.h"
#include "reelgrad/doctor/probes/library_probe.h"
#include "reelgrad/doctor/probes/mounts.h"
#include "reelgrad/doctor/probes/pci_probe.h"
#include "reelgrad/doctor/probes/program_probe.h"
#include "reelgrad/doctor/probes/root_files.h"
#include "reelgrad/doctor/probes/system_probe.h"
#include "reelgrad/doctor/torch/torch_install.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::seconds kFfmpegLimit{5};

Environment own_environment() {
  Environment found;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

// Beside this binary, in the bin/ beside its folder, or on PATH: the plugin is elsewhere than the program.
fs::path reelgrad_program() {
  const fs::path folder = this_library_path().parent_path();
  for (const fs::path& candidate : {folder / "reelgrad", folder.parent_path() / "bin" / "reelgrad"}) {
    if (!find_program(candidate.string()).empty()) return candidate;
  }
  return find_program("reelgrad");
}

// NVIDIA_API_KEY and the like are nobody's business.
bool is_secret(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kMarks{"KEY", "TOKEN", "SECRET", "PASSWORD"};
  return std::any_of(kMarks.begin(), kMarks.end(),
                     [&](std::string_view mark) { return name.find(mark) != std::string_view::npos; });
}

bool is_of_interest(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kPrefixes{"CUDA_", "NVIDIA_", "PYTORCH_", "TORCH_", "REELGRAD_"};
  static constexpr std::array<std::string_view, 7> kNames{"LD_LIBRARY_PATH", "LD_PRELOAD",  "VSSCRIPT_PATH",
                                                          "CONDA_PREFIX",    "VIRTUAL_ENV", "VK_DRIVER_FILES",
                                                          "VK_ICD_FILENAMES"};
  const bool prefixed = std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                    [&](std::string_view prefix) { return name.starts_with(prefix); });
  return prefixed ? !is_secret(name) : std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Environment interesting(const Environment& environment) {
  Environment found;
  for (const auto& [name, value] : environment) {
    if (is_of_interest(name)) found.emplace(name, value);
  }
  return found;
}

TorchFacts torch_facts() {
  TorchFacts missing;
  const auto torch = find_torch(&missing.error);
  return torch ? torch_facts_of(torch->dir) : missing;
}

// What a probe cannot find out is "not known", whatever stopped it.
void quietly(const std::function<void()>& probe) {
  try {
    probe();
  } catch (const std::exception&) {
  }
}

// Asks the children of one run.
class Children {
 public:
  explicit Children(const ProbeOptions& options) : options_(options) {
    for (const auto& [name, value] : options.environment) environment_.push_back(name + "=" + value);
  }

  bool can_be_asked() const { return !options_.program.empty(); }

  // The answer's JSON goes to `take`. Where there is none, or it is not what was expected, the answer says so.
  template <class Take>
  ProbeAnswer ask(const std::vector<std::string>& probe, std::chrono::milliseconds limit, Take take) const {
    ProbeAnswer answer;
    try {
      answer = ask_child(options_.program, probe, limit, environment_);
      if (answer.outcome == Outcome::ok) take(json::parse(answer.json));
    } catch (const std::exception& problem) {
      answer = {Outcome::failed, "", problem.what()};
    }
    return answer;
  }

 private:
  const ProbeOptions& options_;
  std::vector<std::string> environment_;
};

void ask_driver(const Children& children, std::chrono::milliseconds limit, Facts& facts) {
  const ProbeAnswer answer = children.ask({"driver"}, limit, [&](const json& found) {
    DriverFacts driver = found.at("driver").get<DriverFacts>();
    facts.devices = found.at("devices").get<std::vector<DeviceFacts>>();
    if (driver.outcome == Outcome::not_run) driver.outcome = Outcome::ok;
    facts.driver = std::move(driver);
  });
  if (answer.outcome == Outcome::ok) return;
  facts.driver.outcome = answer.outcome;
  facts.driver.error = answer.error;
}

void ask_vulkan(const Children& children, std::chrono::milliseconds limit, Facts& facts) {
  const ProbeAnswer answer =
      children.ask({"vulkan"}, limit, [&](const json& found) { facts.vulkan = found.get<VulkanFacts>(); });
  if (answer.outcome == Outcome::ok) return;
  facts.vulkan.outcome = answer.outcome;
  facts.vulkan.error = answer.error;
}

// Opening a node may never end, where the driver has lost its card.
void ask_nodes(const Children& children, std::chrono::milliseconds limit, Facts& facts) {
  const ProbeAnswer answer = children.ask({"nodes"}, limit, [&](const json& found) {
    facts.device_nodes = found.at("device_nodes").get<std::vector<DeviceNodeFacts>>();
  });
  if (answer.outcome != Outcome::timed_out) return;
  for (DeviceNodeFacts& node : facts.device_nodes) {
    node.usable = false;
    node.error = answer.error;
  }
}

void ask_run_folder(const Children& children, std::chrono::milliseconds limit, SystemFacts& facts) {
  children.ask({"folder", facts.run_dir}, limit, [&](const json& found) {
    facts.run_file_system = found.at("run_file_system").get<std::string>();
    facts.run_free_mb = found.at("run_free_mb").get<std::int64_t>();
  });
}

// What its files say is known; this is about opening it.
void ask_torch(const Children& children, std::chrono::milliseconds limit, TorchFacts& facts) {
  TorchFacts opened;
  const ProbeAnswer answer =
      children.ask({"torch", facts.dir}, limit, [&](const json& found) { opened = found.get<TorchFacts>(); });
  const bool answered = answer.outcome == Outcome::ok;
  facts.outcome = answered ? opened.outcome : answer.outcome;
  facts.cuda_mapped = opened.cuda_mapped;
  const std::string& error = answered ? opened.error : answer.error;
  if (!error.empty()) facts.error = error;
}

void ask_vapoursynth(const Children& children, std::chrono::milliseconds limit, Facts& facts) {
  const ProbeAnswer answer = children.ask(
      {"vapoursynth"}, limit, [&](const json& found) { facts.vapoursynth = found.get<VapourSynthFacts>(); });
  if (answer.outcome == Outcome::ok) return;
  facts.vapoursynth.outcome = answer.outcome;
  facts.vapoursynth.error = answer.error;
}

// What needs no child, and what children will say better.
void probe_files(const RootFiles& files, const ProbeOptions& options, Facts& facts) {
  quietly([&] { facts.system = probe_system(files, options.environment); });
  quietly([&] { probe_run_folder_by_name(files, options.run_dir, facts.system); });
  quietly([&] { facts.pci_cards = probe_pci(files); });
  quietly([&] { facts.modules = probe_kernel_modules(files, facts.system.kernel); });
  quietly([&] { facts.device_nodes = probe_device_nodes(files, NodeCheck::by_mode); });
  quietly([&] { facts.libraries = probe_libraries(files, options.environment); });
  quietly([&] { facts.torch = torch_facts(); });
}

}  // namespace

ProbeOptions probe_options() {
  return {.environment = own_environment(), .program = reelgrad_program()};
}

Facts probe_machine(const ProbeOptions& options) {
  Facts facts;
  const RootFiles files(options.root);
  const Children children(options);
  facts.environment = interesting(options.environment);
  facts.build.version = REELGRAD_VERSION;
  facts.build.torch = REELGRAD_BUILD_TORCH_VERSION;
  facts.build.architectures = REELGRAD_BUILD_ARCHITECTURES;
  facts.build.cuda = REELGRAD_BUILD_CUDA;

  // Each in a thread of its own, so that the time limit is that of them all. They fill different facts.
  std::vector<std::future<void>> running;
  const auto start = [&](std::function<void()> probe) {
    quietly([&] { running.push_back(std::async(std::launch::async, quietly, std::move(probe))); });
  };
  const auto deadline = std::chrono::steady_clock::now() + options.time_limit;
  const auto left = [&] {
    return std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  };
  if (options.video)
    start([&] {
      facts.ffmpeg =
          probe_ffmpeg(files, options.environment, std::min<std::chrono::milliseconds>(left(), kFfmpegLimit));
    });
  if (children.can_be_asked()) {
    start([&] { ask_driver(children, left(), facts); });
  }
  if (children.can_be_asked() && options.video) {
    start([&] { ask_vulkan(children, left(), facts); });
    start([&] { ask_vapoursynth(children, left(), facts); });
  }
  probe_files(files, options, facts);
  // Opening PyTorch takes hundreds of megabytes: its files tell enough where there is no card.
  const bool has_card = !facts.pci_cards.empty() || !facts.device_nodes.empty() || facts.system.has_dxg;
  if (children.can_be_asked() && options.trial && has_card && !facts.torch.dir.empty())
    start([&] { ask_torch(children, left(), facts.torch); });
  // Another root's nodes and folders are only looked at: they answer at once.
  if (children.can_be_asked() && files.is_this_machine()) {
    if (!facts.device_nodes.empty()) start([&] { ask_nodes(children, left(), facts); });
    if (!facts.system.run_dir.empty()) start([&] { ask_run_folder(children, left(), facts.system); });
  }
  for (std::future<void>& one : running) one.wait();
  if (options.trial && children.can_be_asked()) try_cards(facts, options);
  return facts;
}

}  // namespace reelgrad
