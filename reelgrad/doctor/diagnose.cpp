#include "reelgrad/doctor/diagnose.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

constexpr Rule kRules[] = {find_file_handles,     find_torch_problem,
                           find_wsl_without_card, find_fallen_cards,
                           find_nouveau,          find_container_without_card,
                           find_lost_access,      find_shadowed_libcuda,
                           find_unloaded_module,  find_missing_driver,
                           find_driver_mismatch,  find_broken_driver,
                           find_permissions,      find_missing_uvm,
                           find_card_modes,       find_hidden_cards,
                           find_old_driver,       find_unavailable_card,
                           find_no_card,          find_cards_without_kernels,
                           find_failed_trials,    find_python_problem,
                           find_video_problems,   find_full_disk,
                           find_memory_errors,    find_held_back_cards,
                           find_shared_cards,     find_slow_cards,
                           find_small_memory,     find_clashing_settings};

// Why PyTorch cannot compute at all, the processor included.
constexpr std::string_view kTorchCodes[] = {"TORCH_MISSING", "CPU_ONLY_BUILD", "TORCH_UNOPENABLE",
                                            "TORCH_VERSION_MISMATCH"};

// Why the driver gives no card, in the order of the way to it: the first that holds explains those after it.
constexpr std::string_view kWayToTheCard[] = {"TOO_MANY_OPEN_FILES",
                                              "WSL_NO_DXG",
                                              "FALLEN_OFF_BUS",
                                              "NOUVEAU",
                                              "GPU_ACCESS_LOST",
                                              "CONTAINER_WITHOUT_RUNTIME",
                                              "LIBCUDA_SHADOWED",
                                              "MODULE_NOT_LOADED",
                                              "NO_DRIVER",
                                              "DRIVER_MISMATCH",
                                              "DRIVER_CRASHES",
                                              "DRIVER_HANGS",
                                              "DEVICE_PERMISSIONS",
                                              "UVM_NOT_LOADED",
                                              "MIG_WITHOUT_INSTANCE",
                                              "COMPUTE_PROHIBITED",
                                              "HIDDEN_BY_VISIBLE_DEVICES",
                                              "CARD_UNAVAILABLE",
                                              "NO_CARD"};

// Every code, the most blocking first.
constexpr std::string_view kCodes[] = {
    "TOO_MANY_OPEN_FILES", "TORCH_MISSING", "CPU_ONLY_BUILD", "TORCH_UNOPENABLE", "TORCH_VERSION_MISMATCH",
    "CUDA_LIB_NOT_LOADED",
    // the way to the card
    "WSL_NO_DXG", "FALLEN_OFF_BUS", "NOUVEAU", "GPU_ACCESS_LOST", "CONTAINER_WITHOUT_RUNTIME", "LIBCUDA_SHADOWED",
    "MODULE_NOT_LOADED", "NO_DRIVER", "DRIVER_MISMATCH", "DRIVER_CRASHES", "DRIVER_HANGS", "DEVICE_PERMISSIONS",
    "UVM_NOT_LOADED", "MIG_WITHOUT_INSTANCE", "COMPUTE_PROHIBITED", "HIDDEN_BY_VISIBLE_DEVICES", "DRIVER_TOO_OLD",
    "CARD_UNAVAILABLE",
    // the card
    "CARD_TOO_OLD", "CARD_NOT_IN_TORCH", "CARD_NOT_IN_BUILD", "EXCLUSIVE_MODE", "TRIAL_FAILED",
    // somebody's own environment
    "PYTHON_UNREADABLE", "PYTHON_TORCH_MISSING", "PYTHON_CPU_ONLY_BUILD", "PYTHON_TORCH_UNOPENABLE",
    "PYTHON_DRIVER_TOO_OLD", "PYTHON_CARD_NOT_IN_TORCH", "PYTHON_CARD_UNAVAILABLE",
    // no obstacle to a card
    "VAPOURSYNTH_MISSING", "VAPOURSYNTH_OLD", "DISK_FULL", "NO_SOURCE_PLUGIN", "ECC_ERRORS", "MEMORY_HELD_INVISIBLY",
    "CARD_SHARED", "THERMAL_THROTTLE", "POWER_LIMITED", "NARROW_PCIE", "CARD_SLOW", "MEMORY_LIMIT_SMALL", "SHM_SMALL",
    "TORCH_SETTINGS_CLASH", "MEMLOCK_LOW", "FFMPEG_MISSING", "FFMPEG_WITHOUT_X264", "VULKAN_TOO_OLD", "NO_CARD"};

// From here on an error keeps nobody from using a card.
constexpr std::string_view kFirstHarmless = "VAPOURSYNTH_MISSING";

// What is no finding of its own beside its cause.
struct Explanation {
  std::string_view cause;
  std::vector<std::string_view> symptoms;
};
const std::vector<Explanation>& explanations() {
  static const std::vector<Explanation> list = {
      {"TOO_MANY_OPEN_FILES",
       {"TORCH_UNOPENABLE", "TRIAL_FAILED", "VAPOURSYNTH_MISSING", "PYTHON_TORCH_UNOPENABLE", "DRIVER_TOO_OLD"}},
      {"CPU_ONLY_BUILD", {"DRIVER_TOO_OLD"}},
      {"WSL_NO_DXG", {"DRIVER_TOO_OLD"}},
      {"NOUVEAU", {"DRIVER_TOO_OLD"}},
      {"LIBCUDA_SHADOWED", {"DRIVER_TOO_OLD"}},
      {"MODULE_NOT_LOADED", {"DRIVER_TOO_OLD"}},
      {"NO_DRIVER", {"DRIVER_TOO_OLD", "PYTHON_DRIVER_TOO_OLD"}},
      {"DRIVER_MISMATCH", {"DRIVER_TOO_OLD", "PYTHON_DRIVER_TOO_OLD"}},
      {"DRIVER_CRASHES", {"DRIVER_TOO_OLD"}},
      {"DRIVER_HANGS", {"DRIVER_TOO_OLD"}},
      {"GPU_ACCESS_LOST", {"DRIVER_TOO_OLD"}},
      {"CONTAINER_WITHOUT_RUNTIME", {"DRIVER_TOO_OLD"}},
      {"DRIVER_TOO_OLD", {"CARD_UNAVAILABLE", "CARD_NOT_IN_TORCH", "TRIAL_FAILED"}},
      {"FALLEN_OFF_BUS", {"TRIAL_FAILED"}},
      {"EXCLUSIVE_MODE", {"TRIAL_FAILED", "CARD_SHARED"}},
      {"COMPUTE_PROHIBITED", {"TRIAL_FAILED"}},
      {"PYTHON_DRIVER_TOO_OLD", {"PYTHON_CARD_UNAVAILABLE"}},
      {"PYTHON_CARD_NOT_IN_TORCH", {"PYTHON_CARD_UNAVAILABLE"}},
      {"THERMAL_THROTTLE", {"CARD_SLOW"}},
      {"POWER_LIMITED", {"CARD_SLOW"}},
      {"NARROW_PCIE", {"CARD_SLOW"}},
      {"CARD_SHARED", {"CARD_SLOW"}},
  };
  return list;
}

std::ptrdiff_t rank(std::string_view code) {
  return std::ranges::find(kCodes, code) - std::begin(kCodes);
}

bool contains(const auto& list, std::string_view code) {
  return std::ranges::find(list, code) != std::end(list);
}

bool keeps_from_a_card(std::string_view code) {
  return rank(code) < rank(kFirstHarmless);
}

// --- one root cause

// Of the codes on the way to the card only the first stays; warnings are of other cards.
void keep_first_on_the_way(std::vector<Draft>& drafts) {
  const auto is_on_the_way = [](const Draft& draft) {
    return contains(kWayToTheCard, draft.code) && draft.severity != Severity::warning;
  };
  for (const std::string_view code : kWayToTheCard) {
    const auto first =
        std::ranges::find_if(drafts, [&](const Draft& draft) { return draft.code == code && is_on_the_way(draft); });
    if (first == drafts.end()) continue;
    std::erase_if(drafts, [&](const Draft& draft) {
      const bool says_no_more = draft.code == "PYTHON_CARD_UNAVAILABLE";
      return says_no_more || (draft.code != code && is_on_the_way(draft));
    });
    return;
  }
}

// A warning explains no error.
bool is_explained(const Draft& symptom, const std::vector<Draft>& drafts) {
  return std::ranges::any_of(explanations(), [&](const Explanation& explanation) {
    return contains(explanation.symptoms, symptom.code) && std::ranges::any_of(drafts, [&](const Draft& draft) {
             return draft.code == explanation.cause && draft.severity <= symptom.severity;
           });
  });
}

std::vector<Draft> root_causes(const std::vector<Draft>& drafts) {
  std::vector<Draft> causes;
  std::ranges::copy_if(drafts, std::back_inserter(causes),
                       [&](const Draft& draft) { return !is_explained(draft, drafts); });
  keep_first_on_the_way(causes);
  return causes;
}

bool is_more_blocking(const Draft& left, const Draft& right) {
  return std::pair(left.severity, rank(left.code)) < std::pair(right.severity, rank(right.code));
}

// --- words

bool torch_works(const std::vector<Draft>& drafts) {
  return std::ranges::none_of(drafts, [](const Draft& draft) { return contains(kTorchCodes, draft.code); });
}

std::string what_of(const Draft& draft, bool with_processor, Language language) {
  std::vector<Phrase> what{{draft.what.empty() ? draft.code + ".what" : draft.what, {}}};
  if (with_processor) what.push_back({"cpu_works", {}});
  std::string text = sentences(what, language);
  if (draft.python.empty()) return text;
  return in_words({"in_python", {{"python", draft.python}, {"what", text}}}, language);
}

Finding finding_of(const Draft& draft, bool torch_works, Language language) {
  // The processor is what is left to who has no card, or none that will do.
  const bool is_without =
      draft.code == "NO_CARD" || (draft.code == "CARD_TOO_OLD" && draft.severity == Severity::error);
  const bool with_processor = torch_works && is_without;
  return {.code = draft.code,
          .severity = draft.severity,
          .what = what_of(draft, with_processor, language),
          .evidence = listed(draft.found, language),
          .fix = sentences(draft.fix, language)};
}

// An architecture as both lists have it.
struct BuiltArchitecture {
  Capability capability;
  bool exact = false, family = false;  // "90a", "100f"
  bool code = true, ptx = false;
};

bool runs_on(const BuiltArchitecture& built, Capability card) {
  if (built.capability.major == 0) return false;  // nothing that can be read
  if (built.exact) return built.capability == card;
  if ((built.code || built.family) && built.capability.major == card.major && built.capability.minor <= card.minor)
    return true;
  return built.ptx && !built.family && built.capability <= card;
}

BuiltArchitecture read_architecture(std::string_view name) {
  const int number = leading_number(name);
  return {.capability = {number / 10, number % 10}, .exact = name.ends_with('a'), .family = name.ends_with('f')};
}

}  // namespace

std::span<const std::string_view> all_codes() {
  return kCodes;
}

bool has_kernels_for(int major, int minor, const std::string& architectures) {
  std::istringstream list(architectures);
  for (std::string entry; std::getline(list, entry, ',');) {
    BuiltArchitecture built = read_architecture(std::string_view(entry).substr(0, entry.find('-')));
    built.code = !entry.ends_with("-virtual");
    built.ptx = !entry.ends_with("-real");
    if (runs_on(built, {major, minor})) return true;
  }
  return false;
}

bool torch_has_kernels_for(int major, int minor, const std::vector<std::string>& architectures) {
  bool is_known = false;
  for (const std::string& entry : architectures) {
    const std::size_t mark = entry.find('_');
    if (mark == std::string::npos) continue;
    BuiltArchitecture built = read_architecture(std::string_view(entry).substr(mark + 1));
    built.code = entry.starts_with("sm_");
    built.ptx = entry.starts_with("compute_");
    is_known = is_known || built.capability.major > 0;
    if (runs_on(built, {major, minor})) return true;
  }
  return !is_known;
}

std::vector<Finding> diagnose(const Facts& facts, Language language) {
  Drafts found;
  for (const Rule rule : kRules) rule(facts, found);
  std::vector<Draft> drafts = root_causes(found.all());
  std::ranges::stable_sort(drafts, is_more_blocking);
  const bool processor = torch_works(drafts);
  std::vector<Finding> findings;
  for (const Draft& draft : drafts) findings.push_back(finding_of(draft, processor, language));
  return findings;
}

int exit_code(const std::vector<Finding>& findings) {
  const auto is_error = [](const Finding& finding) { return finding.severity == Severity::error; };
  const auto is_without_card = [&](const Finding& finding) {
    return finding.code == "NO_CARD" || (is_error(finding) && keeps_from_a_card(finding.code));
  };
  if (std::ranges::any_of(findings, is_without_card)) return 3;
  return std::ranges::any_of(findings, is_error) ? 1 : 0;
}

bool processor_works(const std::vector<Finding>& findings) {
  return std::ranges::none_of(findings, [](const Finding& finding) { return contains(kTorchCodes, finding.code); });
}

std::string first_reason(const Facts& facts, Language language) {
  for (const Finding& finding : diagnose(facts, language)) {
    const bool is_reason =
        finding.code == "NO_CARD" || (finding.severity == Severity::error && keeps_from_a_card(finding.code));
    if (!is_reason) continue;
    if (finding.fix.empty()) return finding.what;
    return language == Language::chinese ? finding.what + finding.fix : finding.what + " " + finding.fix;
  }
  return "";
}

std::string why_not(const DeviceFacts& device, const Facts& facts, Language language) {
  const auto reason = reason_against(device, facts);
  return reason ? in_words(*reason, language) : "";
}

}  // namespace reelgrad
