#include <fmt/format.h>

#include <algorithm>

#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

bool is_cpu_only(const TorchFacts& torch) {
  // A folder that tells neither its version nor its CUDA, but has the CUDA library, is not known to be one.
  return !torch.dir.empty() && torch.cuda.empty() && !(torch.version.empty() && torch.cuda_library);
}

bool is_another_version(const Facts& facts) {
  return !facts.build.torch.empty() && !facts.torch.version.empty() && facts.torch.version != facts.build.torch;
}

bool needs_newer(const std::string& needed, const std::string& found) {
  return !needed.empty() && !found.empty() && is_older(found, needed);
}

bool has_old_system(const TorchFacts& torch, const SystemFacts& system) {
  return needs_newer(torch.glibc_needed, system.glibc) || needs_newer(torch.libstdcxx_needed, system.libstdcxx);
}

std::string_view ending_of(Outcome outcome) {
  if (outcome == Outcome::crashed) return "crashed";
  return outcome == Outcome::timed_out ? "timed_out" : "failed";
}

// The version of a build, without the CUDA that it names: "2.11.0+cu130" -> "2.11.0".
std::string plain_version(const std::string& version) {
  return version.substr(0, version.find('+'));
}

// Says nothing of the driver: a build without CUDA is not the driver's fault.
Phrase install_torch(const Facts& facts) {
  const std::string wanted = plain_version(facts.build.torch);
  const TorchPair* own = pair_of(wanted);
  const TorchPair* fitting = best_pair(driver_major(facts), {});
  // What this build wants would lead to the next error on a driver that only an older pair runs with.
  if (own && fitting && driver_major(facts) < own->least_driver && driver_major(facts) > 0) {
    return {"install_torch.older_pair",
            {{"torch", std::string(fitting->torch)},
             {"cuda", std::string(fitting->cuda)},
             {"setup", std::string(fitting->setup)}}};
  }
  const std::string setup(own ? own->setup : best_pair(0, {})->setup);
  if (wanted.empty()) return {"install_torch.any", {{"setup", setup}}};
  return {"install_torch.setup", {{"setup", setup}, {"torch", wanted}}};
}

std::vector<Phrase> why_unopenable(const TorchFacts& torch, const SystemFacts& system) {
  std::vector<Phrase> found;
  if (needs_newer(torch.glibc_needed, system.glibc)) {
    found.push_back({"TORCH_UNOPENABLE.found.glibc",
                     {{"dir", torch.dir}, {"needed", torch.glibc_needed}, {"found", system.glibc}}});
  }
  if (needs_newer(torch.libstdcxx_needed, system.libstdcxx)) {
    found.push_back({"TORCH_UNOPENABLE.found.libstdcxx",
                     {{"dir", torch.dir}, {"needed", torch.libstdcxx_needed}, {"found", system.libstdcxx}}});
  }
  if (has_failed(torch.outcome)) {
    found.push_back({fmt::format("TORCH_UNOPENABLE.found.{}", ending_of(torch.outcome)),
                     {{"dir", torch.dir}, {"error", torch.error.empty() ? "-" : one_line(torch.error)}}});
  }
  return found;
}

std::vector<Phrase> how_to_open(const TorchFacts& torch, const Facts& facts, const Phrase& install) {
  if (needs_newer(torch.glibc_needed, facts.system.glibc)) return {{"TORCH_UNOPENABLE.fix.old_system", {}}};
  if (needs_newer(torch.libstdcxx_needed, facts.system.libstdcxx)) return {{"TORCH_UNOPENABLE.fix.libstdcxx", {}}};
  std::vector<Phrase> fix;
  if (const std::string* path = variable(facts, "LD_LIBRARY_PATH"); path && !path->empty())
    fix.push_back({"TORCH_UNOPENABLE.fix.path", {{"path", one_line(*path)}}});
  fix.push_back({"TORCH_UNOPENABLE.fix.again", {}});
  fix.push_back(install);
  return fix;
}

// --- somebody's own environment

bool is_conda(const PythonFacts& python) {
  return mentions(python.path, "conda") || mentions(python.path, "mamba") || mentions(python.path, "miniforge");
}

Phrase install_in_python(const Facts& facts, int driver) {
  const TorchIndex* index = best_index(driver, capabilities(facts));
  if (!index) return {"install_python_torch.none", {}};
  return {is_conda(facts.python) ? "install_python_torch.conda" : "install_python_torch.pip",
          {{"python", facts.python.path}, {"index", std::string(index->url)}}};
}

void add_for_python(const Facts& facts, Drafts& drafts, const std::string& code, std::vector<Phrase> found,
                    std::vector<Phrase> fix) {
  const std::string own = "PYTHON_" + code + ".what";
  drafts.add({.code = "PYTHON_" + code,
              .found = std::move(found),
              .fix = std::move(fix),
              .what = has_phrase(own) ? own : code + ".what",
              .python = facts.python.path});
}

void find_old_driver_for_python(const Facts& facts, Drafts& drafts) {
  const TorchFacts& torch = facts.python.torch;
  const auto needed = missing_driver(torch, facts);
  if (!needed || !knows_of_a_card(facts)) return;
  std::vector<Phrase> fix{install_driver(facts, *needed)};
  if (const TorchIndex* index = best_index(driver_major(facts), capabilities(facts));
      index && driver_major(facts) > 0) {
    fix.push_back({"install_python_torch.older", {{"python", facts.python.path}, {"index", std::string(index->url)}}});
  }
  const bool known = !facts.driver.version.empty();
  add_for_python(facts, drafts, "DRIVER_TOO_OLD",
                 {{known ? "DRIVER_TOO_OLD.found" : "DRIVER_TOO_OLD.found.unknown",
                   {{"driver", facts.driver.version},
                    {"level", cuda_level(facts.driver.cuda)},
                    {"version", torch.version},
                    {"cuda", torch.cuda},
                    {"needed", std::to_string(*needed)}}}},
                 std::move(fix));
}

void find_cards_without_kernels_for_python(const Facts& facts, Drafts& drafts) {
  const TorchFacts& torch = facts.python.torch;
  for (const DeviceFacts& device : facts.devices) {
    const Capability card = capability_of(device);
    if (card.major == 0 || torch_has_kernels_for(card.major, card.minor, torch.architectures)) continue;
    add_for_python(facts, drafts, "CARD_NOT_IN_TORCH",
                   {{"CARD_NOT_IN_TORCH.found",
                     {{"card", card_name(device)},
                      {"capability", to_string(card)},
                      {"version", torch.version},
                      {"built", fmt::format("{}", fmt::join(torch.architectures, ", "))}}}},
                   {install_in_python(facts, driver_major(facts))});
  }
}

void find_unexplained_python(const Facts& facts, Drafts& drafts) {
  const PythonFacts& python = facts.python;
  if (python.is_available.value_or(true)) return;
  std::vector<Phrase> found{
      {"PYTHON_CARD_UNAVAILABLE.found", {{"count", std::to_string(std::max(python.device_count, 0))}}}};
  if (!python.import_error.empty()) found.push_back(error_text(python.import_error));
  add_for_python(facts, drafts, "CARD_UNAVAILABLE", std::move(found), {install_in_python(facts, driver_major(facts))});
}

}  // namespace

std::string_view torch_problem(const Facts& facts) {
  if (facts.torch.dir.empty()) return "TORCH_MISSING";
  if (is_cpu_only(facts.torch)) return "CPU_ONLY_BUILD";
  if (has_old_system(facts.torch, facts.system)) return "TORCH_UNOPENABLE";
  if (is_another_version(facts)) return "TORCH_VERSION_MISMATCH";
  return has_failed(facts.torch.outcome) ? "TORCH_UNOPENABLE" : "";
}

void find_torch_problem(const Facts& facts, Drafts& drafts) {
  const TorchFacts& torch = facts.torch;
  const std::string code(torch_problem(facts));
  const Phrase install = install_torch(facts);
  if (code == "TORCH_MISSING") {
    const bool has_text = !torch.error.empty();
    drafts.add({.code = code,
                .found = {{has_text ? "TORCH_MISSING.found" : "TORCH_MISSING.found.nothing",
                           {{"error", one_line(torch.error)}}}},
                .fix = {install}});
  } else if (code == "CPU_ONLY_BUILD") {
    drafts.add({.code = code,
                .found = {{"CPU_ONLY_BUILD.found", {{"dir", torch.dir}, {"version", torch.version}}}},
                .fix = {install}});
  } else if (code == "TORCH_UNOPENABLE") {
    drafts.add({.code = code, .found = why_unopenable(torch, facts.system), .fix = how_to_open(torch, facts, install)});
  } else if (code == "TORCH_VERSION_MISMATCH") {
    drafts.add({.code = code,
                .found = {{"TORCH_VERSION_MISMATCH.found",
                           {{"dir", torch.dir}, {"version", torch.version}, {"wanted", facts.build.torch}}}},
                .fix = {install}});
  } else if (torch.outcome == Outcome::ok && torch.cuda_mapped == false) {
    drafts.add({.code = "CUDA_LIB_NOT_LOADED",
                .found = {{"CUDA_LIB_NOT_LOADED.found", {{"dir", torch.dir}}}},
                .fix = {{"CUDA_LIB_NOT_LOADED.fix", {}}}});
  }
}

void find_clashing_settings(const Facts& facts, Drafts& drafts) {
  // PyTorch's documentation of its CUDA memory management: cudaMallocAsync takes none of the other allocator's options,
  // and expandable segments are never split by max_split_size_mb.
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const std::string* value = variable(facts, name);
    if (!value) continue;
    const bool async = mentions(*value, "cudaMallocAsync");
    const bool expandable = mentions(*value, "expandable_segments:True");
    const bool split = mentions(*value, "max_split_size_mb");
    if (async + expandable + split < 2) continue;
    drafts.add({.code = "TORCH_SETTINGS_CLASH",
                .severity = Severity::warning,
                .found = {{"TORCH_SETTINGS_CLASH.found.pair",
                           {{"variable", name},
                            {"first", async ? "cudaMallocAsync" : "expandable_segments:True"},
                            {"second", split ? "max_split_size_mb" : "expandable_segments:True"}}}},
                .fix = {{"TORCH_SETTINGS_CLASH.fix", {{"variable", name}}}}});
  }
  for (const char* name : {"PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_LAUNCH_BLOCKING"}) {
    const std::string* value = variable(facts, name);
    if (!value || value->empty() || *value == "0") continue;
    drafts.add({.code = "TORCH_SETTINGS_CLASH",
                .severity = Severity::warning,
                .found = {{"TORCH_SETTINGS_CLASH.found.slow", {{"variable", name}, {"value", one_line(*value)}}}},
                .fix = {{"TORCH_SETTINGS_CLASH.fix", {{"variable", name}}}}});
  }
}

void find_python_problem(const Facts& facts, Drafts& drafts) {
  const PythonFacts& python = facts.python;
  if (python.path.empty()) return;
  TorchFacts torch = python.torch;
  if (python.imported != Outcome::not_run && python.imported != Outcome::ok) {
    torch.outcome = python.imported;
    torch.error = python.import_error;
  }
  if (torch.dir.empty()) {
    const std::string& error = python.error.empty() ? torch.error : python.error;
    const bool is_python = !python.version.empty() || python.error.empty();
    add_for_python(facts, drafts, is_python ? "TORCH_MISSING" : "UNREADABLE",
                   {error.empty() ? Phrase{"TORCH_MISSING.found.nothing", {}} : error_text(error)},
                   {is_python ? install_in_python(facts, driver_major(facts)) : Phrase{"PYTHON_UNREADABLE.fix", {}}});
  } else if (is_cpu_only(torch)) {
    add_for_python(facts, drafts, "CPU_ONLY_BUILD",
                   {{"CPU_ONLY_BUILD.found", {{"dir", torch.dir}, {"version", torch.version}}}},
                   {install_in_python(facts, driver_major(facts))});
  } else if (has_old_system(torch, facts.system) || has_failed(torch.outcome)) {
    add_for_python(facts, drafts, "TORCH_UNOPENABLE", why_unopenable(torch, facts.system),
                   how_to_open(torch, facts, install_in_python(facts, driver_major(facts))));
  } else {
    find_old_driver_for_python(facts, drafts);
    find_cards_without_kernels_for_python(facts, drafts);
    find_unexplained_python(facts, drafts);
  }
}

}  // namespace reelgrad
