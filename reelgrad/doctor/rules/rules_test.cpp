// Every rule of rules.h by values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "reelgrad/doctor/testing/ill_facts.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct RuleCase {
  const char* name;
  std::function<void(Facts&)> change;
  std::vector<std::string> expected;
  const char* evidence = "";  // of the first finding
  const char* fix = "";
};

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

TEST(Rules, WhatIsMissingOfTheDriver) {
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

TEST(Rules, WhatStandsBetween) {
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

TEST(Rules, HiddenByTheVariable) {
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

TEST(Rules, WhatIsWrongWithPyTorch) {
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

TEST(Rules, WarningsOfTheCardAndTheMachine) {
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

TEST(Rules, SomebodysOwnPython) {
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

TEST(Rules, ForwardCompatibilityIsNamedForDataCentreCardsAndNotWarnedOf) {
  Facts facts = healthy_facts();
  facts.devices[0].name = "NVIDIA A100-SXM4-80GB";
  facts.driver.version = facts.modules.nvidia_version = "550.90";
  facts.driver.cuda = 12040;
  EXPECT_THAT(only_finding(facts).fix, AllOf(HasSubstr("cuda-compat-13-0"), HasSubstr("NVIDIA A100-SXM4-80GB")));
  facts.driver.library = "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06";
  facts.driver.cuda = 13000;
  EXPECT_THAT(diagnose(facts), IsEmpty());
}

}  // namespace
}  // namespace reelgrad
