// A libcuda.so.1 for tests: its cards' memory is the host's, its only kernel the trial's.
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "reelgrad/doctor/testdata/fake_answers.h"

#define EXPORTED extern "C" __attribute__((visibility("default"), used))

namespace {

[[gnu::constructor]] void loaded() {
  fake::on_load(fake::text("CUDA_ON_LOAD"));
}

}  // namespace

EXPORTED int cuInit(unsigned) {
  return static_cast<int>(fake::number("CUDA_INIT", 0));
}

EXPORTED int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(fake::number("CUDA_VERSION", 13000));
  return 0;
}

#ifndef REELGRAD_FAKE_BARE

namespace {

std::vector<std::unique_ptr<char[]>> allocated;

char* allocate(std::size_t bytes) {
  allocated.push_back(std::make_unique_for_overwrite<char[]>(bytes));
  return allocated.back().get();
}

int attribute(int which) {
  switch (which) {
    case 16:
      return 28;  // multiprocessors
    case 20:
      return static_cast<int>(fake::number("COMPUTE_MODE", 0));
    case 33:
      return 1;  // PCI bus
    case 75:
      return 8;
    case 76:
      return 6;
    default:
      return 0;
  }
}

struct Uuid {
  std::array<unsigned char, 16> bytes;
};

}  // namespace

EXPORTED int cuGetErrorName(int error, const char** name) {
  *name = nullptr;
  if (error == 2) *name = "CUDA_ERROR_OUT_OF_MEMORY";
  if (error == 100) *name = "CUDA_ERROR_NO_DEVICE";
  if (error == 700) *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
  if (error == 802) *name = "CUDA_ERROR_SYSTEM_NOT_READY";
  if (error == 803) *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
  if (error == 804) *name = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
  if (error == 999) *name = "CUDA_ERROR_UNKNOWN";
  return *name ? 0 : 1;
}

EXPORTED int cuDeviceGetCount(int* count) {
  *count = fake::cards();
  return 0;
}

EXPORTED int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}

EXPORTED int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, fake::text("NAME", "NVIDIA GeForce RTX 3060").c_str(), static_cast<std::size_t>(size));
  return 0;
}

EXPORTED int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{12288} << 20;
  return 0;
}

EXPORTED int cuDeviceGetAttribute(int* value, int which, int device) {
  *value = attribute(which) + (which == 33 ? device : 0);
  return 0;
}

// The last digit is the card's index.
EXPORTED int cuDeviceGetUuid(Uuid* uuid, int device) {
  uuid->bytes = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                 0,    0,    0,    0,    0,    0,    0,    static_cast<unsigned char>(device)};
  return 0;
}

EXPORTED int cuDevicePrimaryCtxRetain(void** context, int) {
  static int it;
  *context = &it;
  return static_cast<int>(fake::number("CONTEXT", 0));
}

EXPORTED int cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}

EXPORTED int cuCtxSetCurrent(void*) {
  return 0;
}

EXPORTED int cuCtxSynchronize() {
  return static_cast<int>(fake::number("SYNCHRONIZE", 0));
}

EXPORTED int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = std::size_t{512} << 20;
  *total = std::size_t{12288} << 20;
  return 0;
}

EXPORTED int cuMemAlloc_v2(unsigned long long* memory, std::size_t bytes) {
  *memory = reinterpret_cast<unsigned long long>(allocate(bytes));
  return static_cast<int>(fake::number("ALLOCATE", 0));
}

EXPORTED int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = allocate(bytes);
  return 0;
}

EXPORTED int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}

EXPORTED int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void*) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}

EXPORTED int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, std::size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}

EXPORTED int cuModuleLoadData(void** module, const void* image) {
  *module = const_cast<void*>(image);
  return 0;
}

EXPORTED int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return std::strstr(static_cast<const char*>(module), name) ? 0 : 500;
}

EXPORTED int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                            void** arguments, void**) {
  const auto* in = reinterpret_cast<const std::uint32_t*>(*static_cast<unsigned long long*>(arguments[0]));
  auto* out = reinterpret_cast<std::uint32_t*>(*static_cast<unsigned long long*>(arguments[1]));
  const auto count = *static_cast<std::uint32_t*>(arguments[2]);
  const auto added = *static_cast<std::uint32_t*>(arguments[3]);
  for (std::uint32_t i = 0; i < count; ++i) out[i] = 3 * in[i] + added;
  if (fake::number("WRONG_WORD", -1) >= 0) out[fake::number("WRONG_WORD", 0)] ^= 1;
  return 0;
}

EXPORTED int cuEventCreate(void** event, unsigned) {
  *event = allocate(1);
  return 0;
}

EXPORTED int cuEventRecord(void*, void*) {
  return 0;
}

EXPORTED int cuEventSynchronize(void*) {
  return 0;
}

EXPORTED int cuEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 5;
  return 0;
}

#endif
