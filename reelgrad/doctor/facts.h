// What is true of this machine, without judgement. Filled by probes, saved and loaded as JSON: a person's report of a
// problem, and a test. Every field has a value that means "not known", which a rule must take as no evidence at all.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace reelgrad {

// How a probe that may crash or hang ended: it runs in a process of its own.
enum class Outcome { not_run, ok, failed, crashed, timed_out };

struct SystemFacts {
  std::string os;                             // "Debian GNU/Linux 12 (bookworm)"
  std::string os_id;                          // "debian", "ubuntu", "fedora", "arch"… as ID of os-release
  std::string os_like;                        // "ubuntu debian": ID_LIKE
  std::string os_version;                     // "12": VERSION_ID
  std::string kernel;                         // "6.1.0-30-amd64"
  std::string machine;                        // "x86_64"
  std::string glibc;                          // "2.36"
  std::string libstdcxx;                      // the newest version of its symbols: "3.4.30" (GLIBCXX_3.4.30)
  int wsl = 0;                                // 0: no, 1, 2
  std::string container;                      // "docker", "podman", "kubernetes", "lxc"…, empty: none
  bool container_has_nvidia_runtime = false;  // the runtime's traces: its mounts or NVIDIA_VISIBLE_DEVICES with files
  bool has_dxg = false;                       // /dev/dxg: WSL's way to the card
  bool secure_boot = false;
  std::int64_t ram_mb = -1, ram_free_mb = -1, swap_mb = -1;
  std::int64_t memory_limit_mb = -1;  // of the control group; -1: none
  std::int64_t memlock_kb = -1;       // -1: unlimited or not known; likewise below
  std::int64_t open_files = -1;
  std::int64_t open_files_used = -1;  // by this process
  std::int64_t shm_mb = -1;           // size of /dev/shm
  std::string run_dir;                // where runs are written: the working directory unless told otherwise
  std::string run_file_system;        // "ext4", "9p", "nfs"…
  std::int64_t run_free_mb = -1;
};

// A display controller of NVIDIA's on the PCI bus, seen without a driver.
struct PciCardFacts {
  std::string address;                     // "0000:01:00.0"
  std::string device_id;                   // "2684"
  std::string bound_driver;                // "nvidia", "nouveau", "vfio-pci"…, empty: none
  bool answers = true;                     // false: its configuration space reads as all ones (fallen off the bus)
  int link_width = 0, link_width_max = 0;  // lanes; 0: not known
  double link_speed_gts = 0, link_speed_max_gts = 0;  // GT/s a lane
};

struct KernelModuleFacts {
  bool nvidia_loaded = false, nvidia_uvm_loaded = false, nouveau_loaded = false;
  bool nvidia_on_disk = false;  // a module for the running kernel exists
  std::string nvidia_version;   // of the loaded module: "580.65.06"
  std::vector<int> xids;        // NVIDIA's error numbers in the kernel's log, newest last, as far as it may be read
};

struct DeviceNodeFacts {
  std::string path;    // "/dev/nvidia0"
  bool usable = true;  // by this user, for reading and writing
  std::string error;   // "Permission denied", when not
  std::string owner;   // "root:video 0660"
};

// A file of this name on the dynamic linker's path, in the order of the search.
struct LibraryFacts {
  std::string name;     // "libcuda.so.1"
  std::string path;     // links followed
  std::string version;  // "580.65.06", "13.0.96": by its file name; empty: it does not say
  std::string from;   // what put it on the path: "LD_LIBRARY_PATH", "ldconfig", "default"; "wsl": in WSL's folder only
  bool stub = false;  // a stub for linking, of the toolkit
};

struct ProcessFacts {
  int pid = 0;
  std::string name;           // empty: not known (another container's)
  std::int64_t used_mb = -1;  // -1: not known
};

// A trial: that work really runs on the card, and how fast. Figures: 0 where not measured.
struct TrialFacts {
  Outcome driver = Outcome::not_run;          // allocation, kernel and copies, through the driver alone
  Outcome engine = Outcome::not_run;          // matrix product, convolution and a step of training, through PyTorch
  std::string error;                          // of the first that did not end well, with the call's name
  double to_card_gbs = 0, from_card_gbs = 0;  // GB/s, pinned
  double card_memory_gbs = 0;                 // GB/s, read and written
  double half_matmul_tflops = 0, half_convolution_tflops = 0;
};

struct DeviceFacts {
  int index = 0;  // CUDA's, as in "cuda:0"
  std::string name;
  std::string uuid;         // "GPU-…" or "MIG-…"
  std::string pci_address;  // "0000:01:00.0"
  std::int64_t memory_total_mb = 0;
  std::int64_t memory_free_mb = -1;
  std::int64_t memory_used_mb = -1;  // by everybody
  std::vector<ProcessFacts> processes;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  std::string compute_mode;         // "default", "exclusive_process", "prohibited"
  std::optional<bool> mig;          // MIG mode is on; a slice is a device of its own
  int mig_instances = -1;           // of a card with MIG on; -1: not known
  std::optional<bool> persistence;  // persistence mode
  double power_w = -1, power_limit_w = -1, power_limit_default_w = -1;
  int clock_mhz = -1, clock_max_mhz = -1;  // of the multiprocessors
  int temperature_c = -1, temperature_slowdown_c = -1;
  std::vector<std::string> throttle_reasons;  // NVML's names in snake_case: "sw_power_cap", "hw_thermal_slowdown"…
  std::int64_t ecc_uncorrected = -1;          // since the driver was loaded
  int pcie_generation = 0, pcie_generation_max = 0;
  int pcie_width = 0, pcie_width_max = 0;
  TrialFacts trial;
};

struct DriverFacts {
  Outcome outcome = Outcome::not_run;  // of asking it, in a process of its own; failed: no library, or it said no
  std::string library;                 // the libcuda that was opened
  std::string version;                 // "580.65.06", empty: not known
  int cuda = 0;                        // as cuDriverGetVersion: 13000 is 13.0; 0: libcuda was not opened
  int init_code = -1;                  // what cuInit returned; -1: not called
  std::string error;                   // why libcuda cannot be opened or gives no device
  // What nvmlInit_v2 returned or, after its success, a card that is out of reach: 15 lost, 999 "Unknown Error"…; -1:
  // not called.
  int nvml_code = -1;
  std::string nvml_error;
  int nvml_cards = -1;  // cards that NVML counts, whatever CUDA_VISIBLE_DEVICES says; -1: not known
  // Every card that NVML counts has MIG on and no instance, or computing is forbidden: CUDA counts none.
  int mig_without_instance = 0, compute_prohibited = 0;
};

// A PyTorch, known by its files; `outcome` by opening it in a process of its own.
struct TorchFacts {
  std::string dir;  // empty: not found
  std::string version;
  std::string cuda;                        // "13.0", empty: a CPU-only build
  std::string error;                       // why it was not found, or cannot be opened
  std::vector<std::string> architectures;  // of its kernels: "sm_80", "sm_90", "compute_120" (PTX); empty: not known
  bool cuda_library = false;               // lib/libtorch_cuda.so is there
  std::string cudnn, nccl;                 // versions, empty: not found
  std::string glibc_needed, libstdcxx_needed;  // "2.28", "3.4.19": the newest versions that its libraries ask for
  Outcome outcome = Outcome::not_run;
  std::optional<bool> cuda_mapped;  // after opening: libtorch_cuda.so is among the process's libraries
};

// Somebody's own Python, of --python.
struct PythonFacts {
  std::string path;  // empty: none was named
  std::string version;
  std::string error;  // why it or its PyTorch cannot be read
  TorchFacts torch;
  Outcome imported = Outcome::not_run;  // with --import: `import torch` and the three usual questions
  std::optional<bool> is_available;     // torch.cuda.is_available()
  int device_count = -1;
  std::string import_error;
};

// As clip/'s VapourSynthVersions; the caller fills it.
struct VapourSynthFacts {
  Outcome outcome = Outcome::not_run;
  std::string core;
  std::string api;
  std::string vsscript;
  std::string python;
  std::vector<std::string> plugins;  // namespaces
  std::vector<std::string> source_plugins;
  std::string error;  // why it cannot be used
};

// For frames that stay on the card.
struct VulkanFacts {
  Outcome outcome = Outcome::not_run;
  std::string loader;                // "1.4.350", empty: none
  std::vector<std::string> devices;  // "NVIDIA H200, 1.4"
  std::string error;
};

struct FfmpegFacts {
  std::string path;  // empty: not found
  std::string version;
  std::vector<std::string> encoders;  // those that reelgrad writes with: "libx264", "ffv1", "hevc_nvenc"…
};

struct BuildFacts {
  std::string version;        // reelgrad's
  std::string torch;          // the version that reelgrad was built for
  std::string architectures;  // of its kernels, as CMAKE_CUDA_ARCHITECTURES, with commas: "80,90a-real"
  std::string cuda;           // of the compiler: "13.0"
};

struct Facts {
  SystemFacts system;
  std::map<std::string, std::string>
      environment;  // CUDA_*, NVIDIA_*, LD_LIBRARY_PATH, PYTORCH_*, REELGRAD_*…; set ones
  std::vector<PciCardFacts> pci_cards;
  KernelModuleFacts modules;
  std::vector<DeviceNodeFacts> device_nodes;
  std::vector<LibraryFacts> libraries;  // libcuda.so.1, libcudart.so.*, libtorch.so, libcudnn.so.9, libnvidia-ml.so.1
  DriverFacts driver;
  std::vector<DeviceFacts> devices;  // that CUDA gives to this process
  TorchFacts torch;                  // the one that reelgrad takes
  PythonFacts python;
  VapourSynthFacts vapoursynth;
  VulkanFacts vulkan;
  FfmpegFacts ffmpeg;
  BuildFacts build;
};

// Pretty, ends with a newline; fields that are as a default Facts has them are left out.
std::string facts_to_json(const Facts& facts);

// Keys that are missing keep their defaults, so that older reports can be read. Throws failed when it is no such JSON.
Facts facts_from_json(const std::string& text);

// Without what names a person or a machine: home folders, UUIDs, PCI domains, host and kernel build suffixes.
Facts scrubbed(const Facts& facts);

}  // namespace reelgrad
