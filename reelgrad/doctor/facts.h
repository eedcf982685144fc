// What is true of this machine, without judgement. Filled by probes, saved and loaded as JSON: a person's report of a
// problem, and a test.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace reelgrad {

struct DeviceFacts {
  int index = 0;  // CUDA's, as in "cuda:0"
  std::string name;
  std::string uuid;
  std::int64_t memory_total_mb = 0;
  std::int64_t memory_free_mb = -1;  // -1: unknown
  int compute_major = 0, compute_minor = 0;
};

struct TorchFacts {
  std::string dir;  // empty: not found
  std::string version;
  std::string cuda;   // "13.0", empty: a CPU-only build
  std::string error;  // why it was not found
};

// As clip/'s VapourSynthVersions; the caller fills it.
struct VapourSynthFacts {
  std::string core;
  std::string api;
  std::string vsscript;
  std::string python;
  std::vector<std::string> source_plugins;
  std::string error;  // why it cannot be used
};

struct Facts {
  std::string os;      // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;  // "6.1.0-30-amd64"

  int pci_cards = 0;            // NVIDIA display devices on the PCI bus, seen without a driver
  std::string driver_version;   // "580.65.06", empty: unknown
  int driver_cuda = 0;          // as cuDriverGetVersion: 13000 is 13.0; 0: libcuda was not opened
  std::string driver_error;     // why libcuda cannot be opened or gives no device
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES, empty: not set
  std::vector<DeviceFacts> devices;

  TorchFacts torch;
  VapourSynthFacts vapoursynth;
  std::string ffmpeg_version;  // empty: not found

  std::string build_torch;          // the version that reelgrad was built for
  std::string build_architectures;  // of its kernels, as CMAKE_CUDA_ARCHITECTURES, with commas: "80,90a-real"
};

std::string facts_to_json(const Facts& facts);

// Keys that are missing keep their defaults, so that older reports can be read. Throws failed when it is no such JSON.
Facts facts_from_json(const std::string& text);

}  // namespace reelgrad
