#include "reelgrad/doctor/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "reelgrad/doctor/facts_json.h"
#include "reelgrad/doctor/healthy_facts.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> codes(const Facts& facts) {
  std::vector<std::string> found;
  for (const Finding& finding : diagnose(facts)) found.push_back(finding.code);
  return found;
}

Finding only_finding(const Facts& facts) {
  const auto findings = diagnose(facts);
  EXPECT_EQ(findings.size(), 1u);
  return findings.empty() ? Finding{} : findings.front();
}

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
  facts.driver.cuda = 0;
  facts.driver.version = "";
  facts.driver.error = "libcuda.so.1: cannot open shared object file";
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
  facts.driver.cuda = 0;
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

// --- every rule by values

struct RuleCase {
  const char* name;
  std::function<void(Facts&)> change;
  std::vector<std::string> expected;
  const char* evidence = "";  // of the first finding
  const char* fix = "";
};

void lose_devices(Facts& facts, int init_code, const std::string& error) {
  facts.devices.clear();
  facts.driver.init_code = init_code;
  facts.driver.error = error;
}

void lose_driver(Facts& facts) {
  facts.devices.clear();
  facts.device_nodes.clear();
  facts.libraries.clear();
  facts.modules = {};
  facts.pci_cards[0].bound_driver = "";
  facts.driver = {.outcome = Outcome::failed, .error = "libcuda.so.1: cannot open shared object file"};
}

void into_container(Facts& facts, const std::string& engine, bool has_runtime) {
  facts.system.container = engine;
  facts.system.container_has_nvidia_runtime = has_runtime;
}

void into_wsl(Facts& facts, int version) {
  facts.system.wsl = version;
  facts.system.has_dxg = version == 2;
  facts.pci_cards.clear();
  facts.modules = {};
  facts.device_nodes.clear();
  facts.libraries = {
      {.name = "libcuda.so.1", .path = "/usr/lib/wsl/drivers/nv.inf/libcuda.so.1.1", .from = "ldconfig"}};
  facts.driver.library = facts.libraries[0].path;
}

void expect_cases(const std::vector<RuleCase>& cases) {
  for (const RuleCase& c : cases) {
    SCOPED_TRACE(c.name);
    Facts facts = healthy_facts();
    c.change(facts);
    EXPECT_EQ(codes(facts), c.expected);
    const auto findings = diagnose(facts);
    if (findings.empty()) continue;
    EXPECT_THAT(findings[0].evidence, HasSubstr(c.evidence));
    EXPECT_THAT(findings[0].fix, HasSubstr(c.fix));
  }
}

TEST(Diagnose, WhatIsMissingOfTheDriver) {
  expect_cases({
      {"debian", lose_driver, {"NO_DRIVER"}, "1 NVIDIA card", "cuda-drivers"},
      {"ubuntu",
       [](Facts& f) {
         lose_driver(f);
         f.system.os_id = "ubuntu";
       },
       {"NO_DRIVER"},
       "",
       "nvidia-driver-580"},
      {"mint",
       [](Facts& f) {
         lose_driver(f);
         f.system.os_id = "linuxmint";
         f.system.os_like = "ubuntu debian";
       },
       {"NO_DRIVER"},
       "",
       "ubuntu-drivers"},
      {"fedora",
       [](Facts& f) {
         lose_driver(f);
         f.system.os_id = "fedora";
       },
       {"NO_DRIVER"},
       "",
       "akmod-nvidia"},
      {"rocky",
       [](Facts& f) {
         lose_driver(f);
         f.system.os_id = "rocky";
         f.system.os_like = "rhel centos fedora";
       },
       {"NO_DRIVER"},
       "",
       "RPM Fusion"},
      {"arch",
       [](Facts& f) {
         lose_driver(f);
         f.system.os_id = "arch";
       },
       {"NO_DRIVER"},
       "",
       "pacman"},
      {"elsewhere",
       [](Facts& f) {
         lose_driver(f);
         f.system.os_id = "void";
       },
       {"NO_DRIVER"},
       "",
       "nvidia.com/drivers"},
      {"its library",
       [](Facts& f) {
         lose_driver(f);
         f.modules = healthy_facts().modules;
       },
       {"NO_DRIVER"},
       "580.65.06",
       "libcuda1"},
      {"nouveau",
       [](Facts& f) {
         lose_driver(f);
         f.modules.nouveau_loaded = true;
       },
       {"NOUVEAU"},
       "nouveau is loaded",
       "cuda-drivers"},
      {"nouveau beside the driver",
       [](Facts& f) {
         lose_driver(f);
         f.modules = {.nouveau_loaded = true, .nvidia_on_disk = true};
         f.pci_cards[0].bound_driver = "nouveau";
       },
       {"NOUVEAU"},
       "0000:01:00.0 is bound to nouveau",
       "update-initramfs"},
      {"not loaded",
       [](Facts& f) {
         lose_driver(f);
         f.modules.nvidia_on_disk = true;
       },
       {"MODULE_NOT_LOADED"},
       "6.1.0-30-amd64",
       "modprobe nvidia"},
      {"secure boot",
       [](Facts& f) {
         lose_driver(f);
         f.modules.nvidia_on_disk = f.system.secure_boot = true;
       },
       {"MODULE_NOT_LOADED"},
       "secure boot",
       "mokutil"},
      {"not built",
       [](Facts& f) {
         f.modules = {};
         f.pci_cards[0].bound_driver = "";
         lose_devices(f, 100, "cuInit says 100 (CUDA_ERROR_NO_DEVICE)");
       },
       {"MODULE_NOT_LOADED"},
       "there is no module for kernel",
       "dkms autoinstall"},
      {"mismatch by versions",
       [](Facts& f) {
         f.modules.nvidia_version = "575.57.08";
         lose_devices(f, 999, "cuInit says 999");
       },
       {"DRIVER_MISMATCH"},
       "kernel module 575.57.08, library 580.65.06",
       "Restart the machine"},
      {"mismatch by NVML",
       [](Facts& f) {
         f.driver.nvml_code = 18;
         f.driver.version = "";
         lose_devices(f, 803, "");
       },
       {"DRIVER_MISMATCH"},
       "NVML says 18",
       "Restart"},
      {"memory's module",
       [](Facts& f) {
         f.modules.nvidia_uvm_loaded = false;
         lose_devices(f, 999, "cuInit says 999 (CUDA_ERROR_UNKNOWN)");
       },
       {"UVM_NOT_LOADED"},
       "nvidia_uvm",
       "nvidia-modprobe -u"},
      {"crash",
       [](Facts& f) {
         lose_devices(f, -1, "killed by signal 11 (SIGSEGV)");
         f.driver.outcome = Outcome::crashed;
         f.driver.cuda = 0;
       },
       {"DRIVER_CRASHES"},
       "SIGSEGV",
       "install the driver again"},
      {"hang",
       [](Facts& f) {
         lose_devices(f, -1, "no answer within 5 s");
         f.driver.outcome = Outcome::timed_out;
         f.driver.cuda = 0;
       },
       {"DRIVER_HANGS"},
       "no answer within 5 s",
       "restart the machine"},
      {"off the bus",
       [](Facts& f) {
         lose_devices(f, 100, "");
         f.pci_cards[0].answers = false;
         f.modules.xids = {79};
       },
       {"FALLEN_OFF_BUS"},
       "XID 79",
       "Switch the machine off"},
      {"came back", [](Facts& f) { f.modules.xids = {79}; }, {}},
      {"fabric",
       [](Facts& f) { lose_devices(f, 802, "cuInit says 802"); },
       {"CARD_UNAVAILABLE"},
       "802",
       "nvidia-fabricmanager"},
      {"for a virtual machine",
       [](Facts& f) {
         lose_driver(f);
         f.driver.cuda = 13000;
         f.modules = healthy_facts().modules;
         f.pci_cards[0].bound_driver = "vfio-pci";
       },
       {"CARD_UNAVAILABLE"},
       "vfio-pci",
       "vfio-pci"},
  });
}

TEST(Diagnose, WhatStandsBetween) {
  expect_cases({
      {"stub",
       [](Facts& f) {
         f.libraries.insert(f.libraries.begin(), {.name = "libcuda.so.1",
                                                  .path = "/usr/local/cuda/lib64/stubs/libcuda.so",
                                                  .from = "LD_LIBRARY_PATH",
                                                  .stub = true});
         lose_devices(f, 34, "cuInit says 34 (CUDA_ERROR_STUB_LIBRARY)");
       },
       {"LIBCUDA_SHADOWED"},
       "/usr/local/cuda/lib64/stubs/libcuda.so",
       "out of LD_LIBRARY_PATH"},
      {"another version first",
       [](Facts& f) {
         f.libraries.insert(f.libraries.begin(), {.name = "libcuda.so.1",
                                                  .path = "/opt/old/libcuda.so.470.82",
                                                  .version = "470.82",
                                                  .from = "LD_LIBRARY_PATH"});
         f.driver.library = "/opt/old/libcuda.so.470.82";
         lose_devices(f, 803, "");
       },
       {"LIBCUDA_SHADOWED"},
       "470.82",
       "/opt/old"},
      {"compat on a card that may not",
       [](Facts& f) {
         f.driver.library = "/usr/local/cuda-13.0/compat/libcuda.so.1";
         lose_devices(f, 804, "");
       },
       {"LIBCUDA_SHADOWED"},
       "804",
       "compat"},
      {"WSL in order", [](Facts& f) { into_wsl(f, 2); }, {}},
      {"WSL with a Linux driver",
       [](Facts& f) {
         into_wsl(f, 2);
         f.libraries.insert(f.libraries.begin(), {.name = "libcuda.so.1",
                                                  .path = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.90",
                                                  .version = "550.90",
                                                  .from = "ldconfig"});
         lose_devices(f, 100, "");
       },
       {"LIBCUDA_SHADOWED"},
       "550.90",
       "Remove the Linux driver"},
      {"WSL 1",
       [](Facts& f) {
         into_wsl(f, 1);
         lose_devices(f, 100, "");
       },
       {"WSL_NO_DXG"},
       "WSL 1",
       "--set-version"},
      {"WSL 2 with an old Windows driver",
       [](Facts& f) {
         into_wsl(f, 2);
         f.system.has_dxg = false;
         f.libraries.clear();
         lose_devices(f, -1, "");
         f.driver.cuda = 0;
       },
       {"WSL_NO_DXG"},
       "without /dev/dxg",
       "wsl --update"},
      {"WSL without Windows' driver",
       [](Facts& f) {
         into_wsl(f, 2);
         f.libraries.clear();
         lose_devices(f, -1, "");
         f.driver.cuda = 0;
       },
       {"NO_DRIVER"},
       "/dev/dxg",
       "in Windows"},
      {"docker run without --gpus",
       [](Facts& f) {
         lose_driver(f);
         into_container(f, "docker", false);
         f.modules = healthy_facts().modules;
       },
       {"CONTAINER_WITHOUT_RUNTIME"},
       "docker",
       "--gpus all"},
      {"podman",
       [](Facts& f) {
         lose_driver(f);
         into_container(f, "podman", false);
       },
       {"CONTAINER_WITHOUT_RUNTIME"},
       "podman",
       "nvidia.com/gpu=all"},
      {"without compute",
       [](Facts& f) {
         lose_devices(f, -1, "");
         f.driver.cuda = 0;
         into_container(f, "docker", true);
         f.environment["NVIDIA_DRIVER_CAPABILITIES"] = "utility";
       },
       {"CONTAINER_WITHOUT_RUNTIME"},
       "NVIDIA_DRIVER_CAPABILITIES=utility",
       "compute"},
      {"access lost",
       [](Facts& f) {
         into_container(f, "docker", true);
         f.driver.nvml_code = 999;
         f.driver.nvml_error = "Unknown Error";
         lose_devices(f, 100, "");
       },
       {"GPU_ACCESS_LOST"},
       "Unknown Error",
       "Restart the container"},
      {"permissions",
       [](Facts& f) {
         f.device_nodes[0] = {
             .path = "/dev/nvidia0", .usable = false, .error = "Permission denied", .owner = "root:video 0660"};
         lose_devices(f, 100, "");
       },
       {"DEVICE_PERMISSIONS"},
       "/dev/nvidia0 (root:video 0660): Permission denied",
       "usermod -aG video"},
      {"permissions of root alone",
       [](Facts& f) {
         f.device_nodes[0] = {
             .path = "/dev/nvidia0", .usable = false, .error = "Permission denied", .owner = "root:root 0600"};
         lose_devices(f, 100, "");
       },
       {"DEVICE_PERMISSIONS"},
       "root:root",
       "NVreg_DeviceFileMode"},
      {"MIG",
       [](Facts& f) {
         lose_devices(f, 100, "");
         f.driver.mig_without_instance = 1;
       },
       {"MIG_WITHOUT_INSTANCE"},
       "1 card",
       "nvidia-smi -mig 0"},
      {"prohibited",
       [](Facts& f) {
         lose_devices(f, 100, "");
         f.driver.compute_prohibited = 2;
       },
       {"COMPUTE_PROHIBITED"},
       "2 card",
       "-c DEFAULT"},
      {"exclusive",
       [](Facts& f) {
         f.devices[0].compute_mode = "exclusive_process";
         f.devices[0].processes = {{.pid = 77, .name = "python", .used_mb = 9000}};
       },
       {"EXCLUSIVE_MODE"},
       "pid 77 python 9000 MiB",
       "End the other program"},
      {"out of handles",
       [](Facts& f) { lose_devices(f, 304, "open /dev/nvidiactl: Too many open files"); },
       {"TOO_MANY_OPEN_FILES"},
       "Too many open files",
       "ulimit -n"},
  });
}

TEST(Diagnose, HiddenByTheVariable) {
  struct HiddenCase {
    const char* value;
    bool hidden;
    const char* evidence;
  };
  for (const HiddenCase& c : std::initializer_list<HiddenCase>{{"", true, "set and empty"},
                                                               {"-1", true, "means no card"},
                                                               {"NoDevFiles", true, "means no card"},
                                                               {"1", true, "there are 1 card(s)"},
                                                               {"7,0", true, "there are 1 card(s)"},
                                                               {"GPU-ffffffff", true, "not there"},
                                                               {"cuda:0", true, "neither a number nor a UUID"},
                                                               {"0", false, ""},
                                                               {" 0", false, ""},
                                                               {"99999999999999999999999", true, ""}}) {
    Facts facts = healthy_facts();
    lose_devices(facts, 100, "cuInit says 100 (CUDA_ERROR_NO_DEVICE)");
    facts.environment["CUDA_VISIBLE_DEVICES"] = c.value;
    EXPECT_EQ(only_finding(facts).code, c.hidden ? "HIDDEN_BY_VISIBLE_DEVICES" : "CARD_UNAVAILABLE") << c.value;
    EXPECT_THAT(only_finding(facts).evidence, HasSubstr(c.evidence)) << c.value;
  }
  Facts facts = healthy_facts();
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,5";
  EXPECT_EQ(only_finding(facts).severity, Severity::warning);
  EXPECT_THAT(only_finding(facts).evidence, HasSubstr("names 2 cards, of which 1"));
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,-1";
  EXPECT_THAT(diagnose(facts), IsEmpty());
}

TEST(Diagnose, WhatIsWrongWithPyTorch) {
  expect_cases({
      {"not mapped",
       [](Facts& f) {
         f.torch.outcome = Outcome::ok;
         f.torch.cuda_mapped = false;
       },
       {"CUDA_LIB_NOT_LOADED"},
       "/opt/env/torch/lib/libtorch_cuda.so",
       "--no-as-needed"},
      {"glibc", [](Facts& f) { f.torch.glibc_needed = "2.39"; }, {"TORCH_UNOPENABLE"}, "glibc 2.39", "newer system"},
      {"libstdc++",
       [](Facts& f) { f.torch.libstdcxx_needed = "3.4.33"; },
       {"TORCH_UNOPENABLE"},
       "GLIBCXX_3.4.33",
       "libstdc++"},
      {"old enough",
       [](Facts& f) {
         f.torch.glibc_needed = "2.28";
         f.torch.libstdcxx_needed = "3.4.9";
       },
       {}},
      {"symbol",
       [](Facts& f) {
         f.torch.outcome = Outcome::failed;
         f.torch.error = "undefined symbol: ncclCommShrink";
         f.environment["LD_LIBRARY_PATH"] = "/opt/other";
       },
       {"TORCH_UNOPENABLE"},
       "ncclCommShrink",
       "/opt/other"},
      {"crash",
       [](Facts& f) { f.torch.outcome = Outcome::crashed; },
       {"TORCH_UNOPENABLE"},
       "crashes",
       "install it again"},
      {"without the card",
       [](Facts& f) {
         f.torch.architectures = {"sm_70", "sm_75"};
       },
       {"CARD_NOT_IN_TORCH"},
       "sm_70, sm_75",
       "reelgrad"},
      {"with PTX for it",
       [](Facts& f) {
         f.torch.architectures = {"sm_70", "compute_80"};
       },
       {}},
      {"clash",
       [](Facts& f) { f.environment["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync,expandable_segments:True"; },
       {"TORCH_SETTINGS_CLASH"},
       "cudaMallocAsync and expandable_segments",
       "Unset"},
      {"one option", [](Facts& f) { f.environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"; }, {}},
  });
}

TEST(Diagnose, WarningsOfTheCardAndTheMachine) {
  expect_cases({
      {"heat",
       [](Facts& f) { f.devices[0].throttle_reasons = {"sw_thermal_slowdown"}; },
       {"THERMAL_THROTTLE"},
       "sw_thermal_slowdown"},
      {"power cap at work", [](Facts& f) { f.devices[0].throttle_reasons = {"sw_power_cap"}; }, {}},
      {"less power",
       [](Facts& f) {
         f.devices[0].power_limit_w = 300;
         f.devices[0].power_limit_default_w = 450;
       },
       {"POWER_LIMITED"},
       "limit 300 W, by default 450 W",
       "-pl 450"},
      {"neighbours",
       [](Facts& f) { f.devices[0].processes = {{.pid = 12, .name = "blender", .used_mb = 4000}}; },
       {"CARD_SHARED"},
       "pid 12 blender 4000 MiB"},
      {"a desktop",
       [](Facts& f) { f.devices[0].processes = {{.pid = 12, .name = "/usr/lib/xorg/Xorg", .used_mb = 1500}}; },
       {}},
      // OpenDriveLab/UniAD#180: 17.3 GB of 24.2 after Ctrl-C, and no process.
      {"a dead process",
       [](Facts& f) { f.devices[0].memory_used_mb = 17'715; },
       {"MEMORY_HELD_INVISIBLY"},
       "17715 MiB held by no visible process",
       "fuser"},
      {"lanes",
       [](Facts& f) {
         f.devices[0].pcie_width = 4;
         f.devices[0].pcie_width_max = 16;
       },
       {"NARROW_PCIE"},
       "x4 of x16"},
      {"errors", [](Facts& f) { f.devices[0].ecc_uncorrected = 3; }, {"ECC_ERRORS"}, "3 since"},
      {"trial",
       [](Facts& f) { f.devices[0].trial = {.driver = Outcome::failed, .error = "cuLaunchKernel says 719"}; },
       {"TRIAL_FAILED"},
       "719",
       "dmesg"},
      {"trial without memory",
       [](Facts& f) {
         f.devices[0].trial = {.driver = Outcome::ok, .engine = Outcome::failed, .error = "CUDA out of memory"};
       },
       {"TRIAL_FAILED"},
       "out of memory",
       "Free the card's memory"},
      {"disk", [](Facts& f) { f.system.run_free_mb = 500; }, {"DISK_FULL"}, "500 MiB free"},
      {"limit", [](Facts& f) { f.system.memory_limit_mb = 2048; }, {"MEMORY_LIMIT_SMALL"}, "2048", "--memory"},
      {"shm",
       [](Facts& f) {
         into_container(f, "docker", true);
         f.system.shm_mb = 64;
       },
       {"SHM_SMALL"},
       "64 MiB",
       "--shm-size"},
      {"memlock", [](Facts& f) { f.system.memlock_kb = 64; }, {"MEMLOCK_LOW"}, "64 KiB", "memlock"},
      {"old VapourSynth", [](Facts& f) { f.vapoursynth.core = "R73"; }, {"VAPOURSYNTH_OLD"}, "R73, needed is R81"},
      {"no source", [](Facts& f) { f.vapoursynth.source_plugins.clear(); }, {"NO_SOURCE_PLUGIN"}, "bs", "bestsource"},
      {"encoders",
       [](Facts& f) { f.ffmpeg.encoders = {"ffv1"}; },
       {"FFMPEG_WITHOUT_X264"},
       "ffv1",
       "apt install ffmpeg"},
      {"vulkan",
       [](Facts& f) { f.vulkan = {.outcome = Outcome::ok, .loader = "1.3.275"}; },
       {"VULKAN_TOO_OLD"},
       "1.3.275"},
      {"vulkan of today",
       [](Facts& f) {
         f.vulkan = {.outcome = Outcome::ok, .loader = "1.4.309", .devices = {"NVIDIA GeForce RTX 4090, 1.4"}};
       },
       {}},
  });
}

TEST(Diagnose, SomebodysOwnPython) {
  const auto with_torch = [](Facts& facts, const TorchFacts& torch) {
    facts.python = {.path = "/home/a/venv/bin/python", .version = "3.12.4", .torch = torch};
  };
  const TorchFacts good{.dir = "/home/a/venv/torch", .version = "2.9.0+cu128", .cuda = "12.8", .cuda_library = true};
  expect_cases({
      {"in order", [&](Facts& f) { with_torch(f, good); }, {}},
      {"without CUDA",
       [&](Facts& f) { with_torch(f, {.dir = "/t", .version = "2.9.0+cpu"}); },
       {"PYTHON_CPU_ONLY_BUILD"},
       "2.9.0+cpu",
       "/home/a/venv/bin/python -m pip install"},
      {"none", [&](Facts& f) { with_torch(f, {}); }, {"PYTHON_TORCH_MISSING"}, "", "whl/cu130"},
      {"unreadable",
       [](Facts& f) { f.python = {.path = "/bin/false", .error = "it is no Python"}; },
       {"PYTHON_UNREADABLE"},
       "it is no Python"},
      {"kernels",
       [&](Facts& f) {
         with_torch(f, good);
         f.python.torch.architectures = {"sm_90"};
       },
       {"PYTHON_CARD_NOT_IN_TORCH"},
       "sm_90"},
      {"False without a reason",
       [&](Facts& f) {
         with_torch(f, good);
         f.python.imported = Outcome::ok;
         f.python.is_available = false;
       },
       {"PYTHON_CARD_UNAVAILABLE"},
       "is_available() is False"},
      {"False for the machine's reason",
       [&](Facts& f) {
         with_torch(f, good);
         f.python.imported = Outcome::ok;
         f.python.is_available = false;
         lose_driver(f);
       },
       {"NO_DRIVER"}},
  });
  Facts facts = healthy_facts();
  with_torch(facts, good);
  facts.driver.version = facts.modules.nvidia_version = "470.82";
  EXPECT_THAT(codes(facts), ElementsAre("DRIVER_TOO_OLD", "PYTHON_DRIVER_TOO_OLD"));
  const Finding finding = diagnose(facts)[1];
  EXPECT_THAT(finding.what, HasSubstr("/home/a/venv/bin/python"));
  EXPECT_THAT(finding.fix, AllOf(HasSubstr("525"), HasSubstr("whl/cu118")));
}

TEST(Diagnose, ForwardCompatibilityIsNamedForDataCentreCardsAndNotWarnedOf) {
  Facts facts = healthy_facts();
  facts.devices[0].name = "NVIDIA A100-SXM4-80GB";
  facts.driver.version = facts.modules.nvidia_version = "550.90";
  facts.driver.cuda = 12040;
  EXPECT_THAT(only_finding(facts).fix, AllOf(HasSubstr("cuda-compat-13-0"), HasSubstr("NVIDIA A100-SXM4-80GB")));
  facts.driver.library = "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06";
  facts.driver.cuda = 13000;
  EXPECT_THAT(diagnose(facts), IsEmpty());
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
