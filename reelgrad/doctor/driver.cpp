// The few functions of the driver API and NVML that are needed, declared here: neither's headers or link libraries are
// on every machine that builds or runs this.
#include "reelgrad/doctor/driver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "reelgrad/base/dynamic_library.h"

namespace reelgrad {
namespace {

using CuResult = int;  // 0: success
using CuDevice = int;
struct CuUuid {
  std::array<unsigned char, 16> bytes;
};
constexpr int kComputeMajor = 75, kComputeMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

using NvmlReturn = int;  // 0: success
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};

class DriverLibrary : public DynamicLibrary {
 public:
  using DynamicLibrary::DynamicLibrary;

  // The function's result, or nullopt when this version of the library has no such function.
  template <class... Args>
  std::optional<int> call(const char* name, Args... args) const {
    auto* called = function<int(Args...)>(name);
    if (!called) return std::nullopt;
    return called(args...);
  }

  template <class... Args>
  bool succeeds(const char* name, Args... args) const {
    return call(name, args...) == 0;
  }
};

std::string cuda_error(const DriverLibrary& cuda, const char* function, std::optional<CuResult> result) {
  if (!result) return fmt::format("libcuda.so.1 has no {}", function);
  const char* name = nullptr;
  cuda.succeeds("cuGetErrorName", *result, &name);
  return fmt::format("{} says {} ({})", function, *result, name ? name : "unknown error");
}

std::string uuid_text(const CuUuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

// Closes what it opened, so that NVML's state in a host stays as it was.
class Nvml {
 public:
  Nvml() : library_("libnvidia-ml.so.1"), ready_(library_.succeeds("nvmlInit_v2")) {}
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (ready_) library_.call("nvmlShutdown");
  }

  std::string driver_version() const {
    std::array<char, 96> text{};
    if (!ready_) return "";
    const auto size = static_cast<unsigned>(text.size() - 1);
    return library_.succeeds("nvmlSystemGetDriverVersion", text.data(), size) ? text.data() : "";
  }

  // Of the card or, with "MIG-", the slice of this name.
  std::optional<NvmlMemory> memory(const std::string& uuid) const {
    void* card = device(uuid);
    NvmlMemory memory{};
    if (!card || !library_.succeeds("nvmlDeviceGetMemoryInfo", card, &memory)) return std::nullopt;
    return memory;
  }

  // Computing and drawing ones, as far as this user may see them.
  std::vector<NvmlProcess> processes(const std::string& uuid) const {
    std::vector<NvmlProcess> found;
    void* card = device(uuid);
    if (!card) return found;
    for (const char* query : {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"}) {
      std::array<NvmlProcess, 128> list{};
      auto count = static_cast<unsigned>(list.size());
      if (library_.succeeds(query, card, &count, list.data()))
        found.insert(found.end(), list.begin(), list.begin() + count);
    }
    return found;
  }

 private:
  void* device(const std::string& uuid) const {
    void* handle = nullptr;
    const bool found = ready_ && library_.succeeds("nvmlDeviceGetHandleByUUID", uuid.c_str(), &handle);
    return found ? handle : nullptr;
  }

  DriverLibrary library_;
  bool ready_;
};

DeviceFacts probe_device(const DriverLibrary& cuda, const Nvml& nvml, int index) {
  DeviceFacts facts{.index = index};
  CuDevice device = 0;
  if (!cuda.succeeds("cuDeviceGet", &device, index)) return facts;
  std::array<char, 256> name{};
  if (cuda.succeeds("cuDeviceGetName", name.data(), static_cast<int>(name.size() - 1), device))
    facts.name = name.data();
  std::size_t bytes = 0;
  if (cuda.succeeds("cuDeviceTotalMem_v2", &bytes, device))
    facts.memory_total_mb = static_cast<std::int64_t>(bytes >> 20);
  cuda.call("cuDeviceGetAttribute", &facts.compute_major, kComputeMajor, device);
  cuda.call("cuDeviceGetAttribute", &facts.compute_minor, kComputeMinor, device);
  CuUuid uuid{};
  // The second version tells MIG slices of a card apart; drivers before CUDA 11.4 have only the first.
  const bool known =
      cuda.succeeds("cuDeviceGetUuid_v2", &uuid, device) || cuda.succeeds("cuDeviceGetUuid", &uuid, device);
  if (!known) return facts;
  facts.uuid = "GPU-" + uuid_text(uuid);
  auto memory = nvml.memory(facts.uuid);
  if (!memory && (memory = nvml.memory("MIG-" + uuid_text(uuid)))) facts.uuid = "MIG-" + uuid_text(uuid);
  if (memory) facts.memory_free_mb = static_cast<std::int64_t>(memory->free >> 20);
  return facts;
}

std::string process_name(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

CardMemory probe_card_memory(const std::string& uuid) {
  CardMemory result;
  const Nvml nvml;
  if (const auto memory = nvml.memory(uuid)) result.used_mb = static_cast<std::int64_t>(memory->used >> 20);
  const auto self = static_cast<unsigned>(getpid());
  for (const NvmlProcess& process : nvml.processes(uuid)) {
    if (process.pid == self) continue;
    const bool known = process.used_bytes != ~0ull;
    result.others.push_back({static_cast<int>(process.pid), process_name(process.pid),
                             known ? static_cast<std::int64_t>(process.used_bytes >> 20) : -1});
  }
  return result;
}

void probe_driver(Facts& facts) {
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.environment["CUDA_VISIBLE_DEVICES"] = visible;
  const Nvml nvml;
  facts.driver.version = nvml.driver_version();
  const DriverLibrary cuda("libcuda.so.1");
  if (!cuda) {
    facts.driver.error = cuda.error();
    return;
  }
  cuda.call("cuDriverGetVersion", &facts.driver.cuda);
  const auto started = cuda.call("cuInit", 0u);
  if (started != 0) {
    facts.driver.error = cuda_error(cuda, "cuInit", started);
    return;
  }
  int count = 0;
  const auto counted = cuda.call("cuDeviceGetCount", &count);
  if (counted != 0) facts.driver.error = cuda_error(cuda, "cuDeviceGetCount", counted);
  for (int index = 0; index < count; ++index) facts.devices.push_back(probe_device(cuda, nvml, index));
}

}  // namespace reelgrad
