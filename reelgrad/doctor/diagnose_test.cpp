#include "reelgrad/doctor/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "reelgrad/doctor/facts_json.h"
#include "reelgrad/doctor/testing/ill_facts.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Facts without_devices() {
  Facts facts = healthy_facts();
  facts.devices.clear();
  return facts;
}

TEST(Diagnose, AHealthyMachineHasNoFindings) {
  EXPECT_THAT(diagnose(healthy_facts()), IsEmpty());
  EXPECT_EQ(why_not(healthy_facts().devices[0], healthy_facts()), "");
}

TEST(Diagnose, NoCardIsAnInformation) {
  Facts facts = without_devices();
  facts.pci_cards.resize(0);
  facts.device_nodes.clear();
  facts.driver = {.outcome = Outcome::failed, .error = "libcuda.so.1: cannot open shared object file"};
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "NO_CARD");
  EXPECT_EQ(finding.severity, Severity::info);
  EXPECT_THAT(finding.what, HasSubstr("on the processor"));
  // A variable left over from another machine changes nothing.
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0";
  EXPECT_EQ(only_finding(facts).code, "NO_CARD");
}

TEST(Diagnose, ACardWithoutADriver) {
  Facts facts = without_devices();
  facts.pci_cards.resize(2);
  facts.driver.cuda = 0;
  facts.driver.version = "";
  facts.driver.error = "libcuda.so.1: cannot open shared object file";
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "NO_DRIVER");
  EXPECT_EQ(finding.severity, Severity::error);
  EXPECT_THAT(finding.evidence, AllOf(HasSubstr("2 NVIDIA"), HasSubstr("libcuda.so.1")));
}

TEST(Diagnose, ADriverThatGivesNoCard) {
  Facts facts = without_devices();
  facts.driver.error = "cuInit says 999 (CUDA_ERROR_UNKNOWN)";
  EXPECT_EQ(only_finding(facts).code, "CARD_UNAVAILABLE");
  EXPECT_THAT(only_finding(facts).fix, HasSubstr("Restart"));
  // A variable that names a card of those that are there is evidence, no cause.
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0";
  EXPECT_EQ(only_finding(facts).code, "CARD_UNAVAILABLE");
  EXPECT_THAT(only_finding(facts).evidence, HasSubstr("CUDA_VISIBLE_DEVICES=0"));
}

struct DriverCase {
  const char* driver;
  int level;
  const char* cuda;
  int needed;  // 0: new enough
};

TEST(Diagnose, TheDriverMustBeNewEnoughForTorchsCuda) {
  for (const DriverCase& c : std::initializer_list<DriverCase>{{"580.65.06", 13000, "13.0", 0},
                                                               {"575.57", 12090, "13.0", 580},
                                                               {"590.1", 13010, "12.8", 0},
                                                               {"525.60.13", 12000, "12.8", 0},
                                                               {"520.61", 11080, "12.8", 525},
                                                               {"470.82", 11040, "11.8", 0},
                                                               {"418.40", 10010, "11.8", 450},
                                                               {"", 12020, "13.0", 580},
                                                               {"", 13000, "13.0", 0}}) {
    Facts facts = healthy_facts();
    facts.driver.version = c.driver;
    facts.driver.cuda = c.level;
    facts.torch.cuda = c.cuda;
    facts.modules.nvidia_version = c.driver;
    const std::string name = std::string(c.driver) + " for " + c.cuda;
    if (c.needed == 0) {
      EXPECT_THAT(diagnose(facts), IsEmpty()) << name;
      continue;
    }
    const Finding finding = only_finding(facts);
    EXPECT_EQ(finding.code, "DRIVER_TOO_OLD") << name;
    EXPECT_THAT(finding.fix, HasSubstr(std::to_string(c.needed))) << name;
    EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr(std::to_string(c.needed))) << name;
  }
}

TEST(Diagnose, TheDriversCudaLevelIsDecoded) {
  Facts facts = healthy_facts();
  facts.driver.version = "418.40";
  facts.driver.cuda = 10010;
  EXPECT_THAT(only_finding(facts).evidence, AllOf(HasSubstr("driver 418.40"), HasSubstr("CUDA up to 10.1"),
                                                  HasSubstr("needs CUDA 13.0"), HasSubstr("580 or newer")));
}

TEST(Diagnose, AnOlderDriverIsOfferedTheOlderCudaBuildOnlyWhenItRunsThat) {
  Facts facts = healthy_facts();
  facts.driver.version = "550.90";
  EXPECT_THAT(only_finding(facts).fix, HasSubstr("--cuda 12.8"));
  facts.driver.version = "470.82";
  EXPECT_THAT(only_finding(facts).fix, Not(HasSubstr("--cuda")));
}

TEST(Diagnose, ACardThatIsTooOld) {
  Facts facts = healthy_facts();
  facts.devices[0].compute_major = 7;
  facts.devices[0].compute_minor = 0;
  EXPECT_EQ(only_finding(facts).code, "CARD_TOO_OLD");
  EXPECT_EQ(only_finding(facts).severity, Severity::error);
  EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr("7.0 is below 7.5"));
  // Beside one that runs it is only a warning.
  facts.devices.push_back(healthy_facts().devices[0]);
  EXPECT_EQ(only_finding(facts).severity, Severity::warning);
}

TEST(Diagnose, ACardThatThisBuildHasNoKernelsFor) {
  Facts facts = healthy_facts();
  facts.devices[0].compute_major = 7;
  facts.devices[0].compute_minor = 5;
  EXPECT_EQ(only_finding(facts).code, "CARD_NOT_IN_BUILD");
  EXPECT_THAT(only_finding(facts).fix, HasSubstr("--preset full"));
  EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr("no kernels"));
  facts.build.architectures = "";
  EXPECT_THAT(diagnose(facts), IsEmpty());
}

TEST(Diagnose, TorchIsMissing) {
  Facts facts = healthy_facts();
  facts.torch = {.error = "REELGRAD_TORCH=/none has no lib/libtorch.so"};
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "TORCH_MISSING");
  EXPECT_THAT(finding.evidence, HasSubstr("REELGRAD_TORCH=/none"));
  EXPECT_THAT(finding.fix, HasSubstr("torch==2.11.0 "));
  EXPECT_NE(why_not(facts.devices[0], facts), "");
}

TEST(Diagnose, ACpuOnlyBuildIsNeverBlamedOnTheDriver) {
  Facts facts = healthy_facts();
  facts.torch.version = "2.11.0+cpu";
  facts.torch.cuda = "";
  facts.driver.version = "470.82";
  facts.driver.cuda = 11040;
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "CPU_ONLY_BUILD");
  EXPECT_THAT(finding.fix, Not(HasSubstr("driver")));
  facts.devices.clear();
  facts.pci_cards.resize(0);
  facts.device_nodes.clear();
  facts.driver = {};
  EXPECT_THAT(codes(facts), ElementsAre("CPU_ONLY_BUILD", "NO_CARD"));
}

TEST(Diagnose, AnotherVersionOfTorch) {
  Facts facts = healthy_facts();
  facts.torch.version = "2.10.0+cu130";
  EXPECT_EQ(only_finding(facts).code, "TORCH_VERSION_MISMATCH");
  EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr("2.10.0+cu130 instead of 2.11.0+cu130"));
}

TEST(Diagnose, VideoPrograms) {
  Facts facts = healthy_facts();
  facts.vapoursynth = {.error = "no libvsscript.so"};
  EXPECT_EQ(only_finding(facts).code, "VAPOURSYNTH_MISSING");
  EXPECT_EQ(only_finding(facts).evidence, "no libvsscript.so");
  facts.vapoursynth = healthy_facts().vapoursynth;
  facts.ffmpeg.version = "";
  EXPECT_EQ(only_finding(facts).code, "FFMPEG_MISSING");
  EXPECT_EQ(only_finding(facts).severity, Severity::warning);
}

TEST(Diagnose, AnEmptyMachineGetsErrorsFirstAndAFixForEach) {
  EXPECT_THAT(codes(Facts{}), ElementsAre("TORCH_MISSING", "VAPOURSYNTH_MISSING", "FFMPEG_MISSING", "NO_CARD"));
  for (const Finding& finding : diagnose(Facts{})) {
    EXPECT_NE(finding.what, "") << finding.code;
    EXPECT_EQ(finding.fix.empty(), finding.severity == Severity::info) << finding.code;
  }
}

TEST(Diagnose, TheCpuOnlyAnswerIsTheSameWithAndWithoutACard) {
  Facts with = healthy_facts();
  with.torch.version = "2.11.0+cpu";
  with.torch.cuda = "";
  Facts without = with;
  without.devices.clear();
  without.pci_cards.clear();
  without.device_nodes.clear();
  without.driver = {.outcome = Outcome::failed, .error = "libcuda.so.1: cannot open shared object file"};
  const Finding here = diagnose(with).front(), there = diagnose(without).front();
  EXPECT_EQ(here.code, "CPU_ONLY_BUILD");
  EXPECT_EQ(std::tie(here.code, here.what, here.evidence, here.fix),
            std::tie(there.code, there.what, there.evidence, there.fix));
  // A driver that only the older pair runs with leads to that pair, still without a word of the driver.
  with.driver.version = "550.90";
  EXPECT_THAT(diagnose(with).front().fix, AllOf(HasSubstr("--cuda 12.8"), Not(HasSubstr("driver"))));
}

TEST(Diagnose, ExitCodesAndTheProcessor) {
  EXPECT_EQ(exit_code(diagnose(healthy_facts())), 0);
  Facts facts = healthy_facts();
  facts.ffmpeg.version = "";
  EXPECT_EQ(exit_code(diagnose(facts)), 0);
  facts.vapoursynth.core = "";
  EXPECT_EQ(exit_code(diagnose(facts)), 1);
  lose_driver(facts);
  EXPECT_EQ(exit_code(diagnose(facts)), 3);
  EXPECT_TRUE(processor_works(diagnose(facts)));
  facts.pci_cards.clear();
  EXPECT_EQ(exit_code(diagnose(facts)), 3);
  EXPECT_FALSE(processor_works(diagnose(Facts{})));
  EXPECT_THAT(diagnose(Facts{}).back().what, Not(HasSubstr("processor")));
}

TEST(Diagnose, TheFirstReasonIsForWhoWantedACard) {
  EXPECT_EQ(first_reason(healthy_facts()), "");
  Facts facts = healthy_facts();
  facts.vapoursynth = {};
  lose_driver(facts);
  EXPECT_THAT(first_reason(facts), AllOf(HasSubstr("NVIDIA's driver is not installed. "), HasSubstr("cuda-drivers")));
  EXPECT_THAT(first_reason(facts, Language::chinese), HasSubstr("没有安装 NVIDIA 驱动。"));
  facts.pci_cards.clear();
  EXPECT_THAT(first_reason(facts), HasSubstr("There is no NVIDIA card."));
}

// --- random facts

using nlohmann::json;

json any_of_kind(const json& like, std::mt19937& random) {
  static const std::vector<json> kTexts = {"",
                                           "0",
                                           "-1",
                                           "13.0",
                                           "12.8",
                                           "11.8",
                                           "9.9",
                                           "580.65.06",
                                           "470.82",
                                           "R60",
                                           "R81",
                                           "docker",
                                           "podman",
                                           "ubuntu",
                                           "fedora",
                                           "arch",
                                           "nouveau",
                                           "vfio-pci",
                                           "nvidia",
                                           "libcuda.so.1",
                                           "/usr/lib/wsl/lib/libcuda.so.1",
                                           "/dev/nvidia0",
                                           "Permission denied",
                                           "Operation not permitted",
                                           "Too many open files",
                                           "GPU-1",
                                           "exclusive_process",
                                           "prohibited",
                                           "sm_80",
                                           "compute_120",
                                           "sm_90a",
                                           "sw_thermal_slowdown",
                                           "sw_power_cap",
                                           "NVIDIA A100",
                                           "2.11.0+cu130",
                                           "2.11.0+cpu",
                                           "80,90a-real",
                                           ",,x-,-1",
                                           "{0} {} {{x",
                                           "a\nb\tc",
                                           "\xe9\x94\x99",
                                           "root:video 0660",
                                           std::string(5000, 'z')};
  static const std::vector<json> kWhole = {-1,  0,   1,   2,   4,   16,    18,    34,     79,      100,    304,
                                           525, 802, 803, 804, 999, 12040, 13000, 24'000, INT_MAX, INT_MIN};
  static const std::vector<json> kReal = {-1.0, 0.0, 0.5, 16.0, 300.0, 450.0, 1e12, -1e12};
  static const std::vector<json> kOutcomes = {"not_run", "ok", "failed", "crashed", "timed_out"};
  const auto one_of = [&](const std::vector<json>& list) { return list[random() % list.size()]; };
  if (like.is_boolean()) return random() % 2 == 0;
  if (like.is_null()) return std::vector<json>{nullptr, true, false}[random() % 3];
  if (like.is_number_float()) return one_of(kReal);
  if (like.is_number()) return one_of(kWhole);
  if (std::ranges::find(kOutcomes, like) != kOutcomes.end()) return one_of(kOutcomes);
  return one_of(kTexts);
}

// A value of the same shape; what it is called decides nothing.
json scrambled(const json& like, std::mt19937& random, unsigned keep_percent) {
  if (like.is_object()) {
    json result = json::object();
    for (const auto& [key, value] : like.items()) result[key] = scrambled(value, random, keep_percent);
    return result;
  }
  if (like.is_array()) {
    json result = json::array();
    for (const json& value : like) result.push_back(scrambled(value, random, keep_percent));
    if (!like.empty() && random() % 4 == 0) result.push_back(scrambled(like[0], random, keep_percent));
    if (!like.empty() && random() % 4 == 0) result.clear();
    return result;
  }
  return random() % 100 < keep_percent ? like : any_of_kind(like, random);
}

// Every list has an entry, so that every field is scrambled.
Facts full_facts() {
  Facts facts = healthy_facts();
  facts.environment = {{"CUDA_VISIBLE_DEVICES", "0"},
                       {"NVIDIA_VISIBLE_DEVICES", "all"},
                       {"LD_LIBRARY_PATH", "/opt"},
                       {"PYTORCH_CUDA_ALLOC_CONF", ""}};
  facts.modules.xids = {13};
  facts.torch.architectures = {"sm_80"};
  facts.devices[0].processes = {{.pid = 1}};
  facts.devices[0].throttle_reasons = {"gpu_idle"};
  facts.python = {.path = "/p/python", .version = "3.12", .torch = facts.torch};
  facts.vapoursynth.plugins = {"std"};
  facts.vulkan.devices = {"NVIDIA H200, 1.4"};
  facts.ffmpeg.encoders = {"libx264"};
  return facts;
}

const std::vector<std::pair<std::string_view, std::vector<std::string_view>>>& contradictions() {
  static const std::vector<std::pair<std::string_view, std::vector<std::string_view>>> list = {
      {"NO_CARD",
       {"NO_DRIVER", "NOUVEAU", "MODULE_NOT_LOADED", "DRIVER_MISMATCH", "DRIVER_TOO_OLD", "CARD_TOO_OLD",
        "CARD_NOT_IN_BUILD", "CARD_NOT_IN_TORCH", "CARD_UNAVAILABLE", "TRIAL_FAILED", "EXCLUSIVE_MODE", "CARD_SHARED",
        "HIDDEN_BY_VISIBLE_DEVICES", "THERMAL_THROTTLE", "NARROW_PCIE", "MEMORY_HELD_INVISIBLY", "VULKAN_TOO_OLD"}},
      {"NO_DRIVER",
       {"NOUVEAU", "MODULE_NOT_LOADED", "DRIVER_MISMATCH", "DRIVER_TOO_OLD", "LIBCUDA_SHADOWED", "DRIVER_CRASHES",
        "DRIVER_HANGS", "DEVICE_PERMISSIONS", "UVM_NOT_LOADED", "HIDDEN_BY_VISIBLE_DEVICES", "CARD_UNAVAILABLE",
        "CARD_TOO_OLD", "TRIAL_FAILED", "CONTAINER_WITHOUT_RUNTIME", "WSL_NO_DXG"}},
      {"CPU_ONLY_BUILD",
       {"DRIVER_TOO_OLD", "TORCH_MISSING", "TORCH_UNOPENABLE", "TORCH_VERSION_MISMATCH", "CUDA_LIB_NOT_LOADED",
        "CARD_NOT_IN_TORCH"}},
      {"TORCH_MISSING", {"DRIVER_TOO_OLD", "TORCH_UNOPENABLE", "CUDA_LIB_NOT_LOADED", "CARD_NOT_IN_TORCH"}},
      {"DRIVER_MISMATCH", {"DRIVER_TOO_OLD", "LIBCUDA_SHADOWED", "MODULE_NOT_LOADED"}},
      {"DRIVER_CRASHES", {"DRIVER_HANGS", "CARD_UNAVAILABLE"}},
      {"GPU_ACCESS_LOST", {"CONTAINER_WITHOUT_RUNTIME", "DEVICE_PERMISSIONS", "CARD_UNAVAILABLE"}},
      {"VAPOURSYNTH_MISSING", {"VAPOURSYNTH_OLD", "NO_SOURCE_PLUGIN"}},
      {"FFMPEG_MISSING", {"FFMPEG_WITHOUT_X264"}},
      {"PYTHON_UNREADABLE", {"PYTHON_TORCH_MISSING", "PYTHON_CPU_ONLY_BUILD", "PYTHON_DRIVER_TOO_OLD"}},
      {"PYTHON_CPU_ONLY_BUILD", {"PYTHON_DRIVER_TOO_OLD", "PYTHON_CARD_NOT_IN_TORCH"}},
  };
  return list;
}

void expect_sound(const std::vector<Finding>& findings, Language language) {
  std::set<std::string> seen;
  for (const Finding& finding : findings) {
    EXPECT_TRUE(seen.insert(finding.code).second) << finding.code;
    EXPECT_NE(std::ranges::find(all_codes(), finding.code), all_codes().end()) << finding.code;
    EXPECT_NE(finding.what, "") << finding.code;
    EXPECT_NE(finding.evidence, "") << finding.code;
    EXPECT_TRUE(!finding.fix.empty() || finding.severity == Severity::info) << finding.code;
    if (finding.code == "CPU_ONLY_BUILD") {
      EXPECT_THAT(finding.fix, Not(HasSubstr(language == Language::chinese ? "驱动" : "driver")));
    }
  }
  EXPECT_TRUE(std::ranges::is_sorted(findings, {}, &Finding::severity));
  for (const auto& [code, others] : contradictions()) {
    if (!seen.contains(std::string(code))) continue;
    for (const std::string_view other : others) EXPECT_FALSE(seen.contains(std::string(other))) << code << " " << other;
  }
}

TEST(Diagnose, RandomFactsGiveSoundFindings) {
  std::mt19937 random(20261130);
  const json like = full_facts();
  std::set<std::string> met;
  for (int round = 0; round < 4000 && !::testing::Test::HasFailure(); ++round) {
    const json changed = scrambled(like, random, std::vector<unsigned>{97, 90, 70, 30, 0}[round % 5]);
    SCOPED_TRACE(changed.dump(-1, ' ', false, json::error_handler_t::replace));
    const Facts facts = changed.get<Facts>();
    const auto findings = diagnose(facts), again = diagnose(facts);
    expect_sound(findings, Language::english);
    ASSERT_EQ(findings.size(), again.size());
    const auto translated = diagnose(facts, Language::chinese);
    expect_sound(translated, Language::chinese);
    ASSERT_EQ(findings.size(), translated.size());
    for (std::size_t i = 0; i < findings.size(); ++i) {
      EXPECT_EQ(findings[i].evidence, again[i].evidence);
      EXPECT_EQ(findings[i].code, translated[i].code);
      met.insert(findings[i].code);
    }
    for (const DeviceFacts& device : facts.devices) why_not(device, facts, Language::chinese);
  }
  // The generator reaches nearly all rules.
  EXPECT_GE(met.size() + 6, all_codes().size());
}

TEST(Kernels, FollowTheRuleOfCodeAndPtx) {
  EXPECT_TRUE(has_kernels_for(8, 6, "80-real"));
  EXPECT_FALSE(has_kernels_for(8, 0, "86-real"));
  EXPECT_FALSE(has_kernels_for(9, 0, "80-real"));
  EXPECT_TRUE(has_kernels_for(9, 0, "80"));
  EXPECT_TRUE(has_kernels_for(12, 1, "75-real,80-virtual"));
  EXPECT_FALSE(has_kernels_for(12, 0, "90-real"));
  EXPECT_TRUE(has_kernels_for(9, 0, "90a-real"));
  EXPECT_FALSE(has_kernels_for(10, 0, "90a"));
  EXPECT_FALSE(has_kernels_for(7, 5, "80,90a-real"));
  EXPECT_TRUE(has_kernels_for(7, 5, "75-real,80,86-real,89-real,90-real,90a-real,120"));
  EXPECT_TRUE(has_kernels_for(10, 3, "100f-real"));
  EXPECT_FALSE(has_kernels_for(12, 0, "100f"));
  EXPECT_FALSE(has_kernels_for(8, 0, "native"));
}

// comfy-org/ComfyUI PR 16438: the architectures of PyTorch 2.9's builds.
TEST(Kernels, OfPyTorchsBuilds) {
  const std::vector<std::string> cu126 = {"sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"};
  const std::vector<std::string> cu128 = {"sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"};
  const std::vector<std::string> cu130 = {"sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"};
  EXPECT_TRUE(torch_has_kernels_for(8, 6, {"sm_80"}));
  EXPECT_FALSE(torch_has_kernels_for(12, 0, {"sm_90"}));
  EXPECT_FALSE(torch_has_kernels_for(6, 1, cu128));
  EXPECT_TRUE(torch_has_kernels_for(6, 1, cu126));
  EXPECT_TRUE(torch_has_kernels_for(12, 1, cu130));
  EXPECT_TRUE(torch_has_kernels_for(12, 1, {"compute_120"}));
  EXPECT_FALSE(torch_has_kernels_for(9, 0, {"sm_80"}));
  EXPECT_FALSE(torch_has_kernels_for(7, 0, cu130));
  EXPECT_TRUE(torch_has_kernels_for(8, 9, {}));
}

}  // namespace
}  // namespace reelgrad
