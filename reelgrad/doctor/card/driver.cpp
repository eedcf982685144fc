#include "reelgrad/doctor/card/driver.h"

#include <unistd.h>

#include "reelgrad/doctor/card/cuda_driver.h"
#include "reelgrad/doctor/card/nvml.h"

namespace reelgrad {
namespace {

// Empty when CUDA gives devices.
std::string probe_cuda(const CudaDriver& cuda, Facts& facts) {
  if (!cuda) return cuda.error();
  const std::filesystem::path file = cuda.file_of("cuInit");
  facts.driver.library = file.string();
  facts.driver.version = driver_version_in(file);
  cuda.call("cuDriverGetVersion", &facts.driver.cuda);
  const auto started = cuda.call("cuInit", 0u);
  facts.driver.init_code = started.value_or(-1);
  if (started != 0) return cuda.failure("cuInit", started);
  int count = 0;
  const auto counted = cuda.call("cuDeviceGetCount", &count);
  if (counted != 0) return cuda.failure("cuDeviceGetCount", counted);
  for (int index = 0; index < count; ++index) facts.devices.push_back(cuda.describe(index));
  return "";
}

}  // namespace

void probe_driver(Facts& facts) {
  const CudaDriver cuda;
  facts.driver.error = probe_cuda(cuda, facts);
  facts.driver.outcome = facts.driver.error.empty() ? Outcome::ok : Outcome::failed;
  const Nvml nvml;
  for (DeviceFacts& device : facts.devices) nvml.describe(device);
  nvml.describe(facts.driver);
}

CardMemory probe_card_memory(const std::string& uuid) {
  CardMemory result;
  const Nvml nvml;
  if (const auto memory = nvml.memory(uuid)) result.used_mb = static_cast<std::int64_t>(memory->used >> 20);
  for (const ProcessFacts& process : nvml.processes(uuid)) {
    if (process.pid != getpid()) result.others.push_back(process);
  }
  return result;
}

}  // namespace reelgrad
