#include "reelgrad/doctor/card/cuda_driver.h"

#include <fmt/format.h>

#include <array>

namespace reelgrad {
namespace {

// CU_DEVICE_ATTRIBUTE_*
constexpr int kMultiprocessors = 16, kComputeMode = 20, kPciBus = 33, kPciDevice = 34, kPciDomain = 50;
constexpr int kComputeMajor = 75, kComputeMinor = 76;

struct CuUuid {
  std::array<unsigned char, 16> bytes;
};

std::string uuid_text(const CuUuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

std::string pci_address(const CudaDriver& cuda, CudaDevice device) {
  int domain = 0, bus = 0, slot = 0;
  const bool known = cuda.succeeds("cuDeviceGetAttribute", &domain, kPciDomain, device) &&
                     cuda.succeeds("cuDeviceGetAttribute", &bus, kPciBus, device) &&
                     cuda.succeeds("cuDeviceGetAttribute", &slot, kPciDevice, device);
  return known ? fmt::format("{:04x}:{:02x}:{:02x}.0", domain, bus, slot) : "";
}

std::string compute_mode(const CudaDriver& cuda, CudaDevice device) {
  int mode = -1;
  cuda.call("cuDeviceGetAttribute", &mode, kComputeMode, device);
  return compute_mode_name(mode);
}

}  // namespace

std::string compute_mode_name(int mode) {
  switch (mode) {
    case 0:
      return "default";
    case 1:
      return "exclusive_thread";
    case 2:
      return "prohibited";
    case 3:
      return "exclusive_process";
    default:
      return "";
  }
}

std::string CudaDriver::failure(const char* function, std::optional<int> result) const {
  if (!result) return fmt::format("libcuda.so.1 has no {}", function);
  const char* name = nullptr;
  call("cuGetErrorName", *result, &name);
  return fmt::format("{} says {} ({})", function, *result, name ? name : "unknown error");
}

std::string CudaDriver::uuid(CudaDevice device) const {
  CuUuid uuid{};
  // The second version tells MIG slices of a card apart; drivers before CUDA 11.4 have only the first.
  const bool known = succeeds("cuDeviceGetUuid_v2", &uuid, device) || succeeds("cuDeviceGetUuid", &uuid, device);
  return known ? uuid_text(uuid) : "";
}

DeviceFacts CudaDriver::describe(int index) const {
  DeviceFacts facts{.index = index};
  CudaDevice device = 0;
  if (!succeeds("cuDeviceGet", &device, index)) return facts;
  std::array<char, 256> name{};
  if (succeeds("cuDeviceGetName", name.data(), static_cast<int>(name.size() - 1), device)) facts.name = name.data();
  std::size_t bytes = 0;
  if (succeeds("cuDeviceTotalMem_v2", &bytes, device)) facts.memory_total_mb = static_cast<std::int64_t>(bytes >> 20);
  call("cuDeviceGetAttribute", &facts.compute_major, kComputeMajor, device);
  call("cuDeviceGetAttribute", &facts.compute_minor, kComputeMinor, device);
  call("cuDeviceGetAttribute", &facts.multiprocessors, kMultiprocessors, device);
  facts.compute_mode = compute_mode(*this, device);
  facts.pci_address = pci_address(*this, device);
  const bool slice = facts.name.find(" MIG ") != std::string::npos;
  if (const std::string text = uuid(device); !text.empty()) facts.uuid = (slice ? "MIG-" : "GPU-") + text;
  return facts;
}

}  // namespace reelgrad
