// A libnvidia-ml.so.1 for tests. After REELGRAD_FAKE_NVML_CALLS questions about a card it says
// REELGRAD_FAKE_NVML_LOST to all, as in a container that has lost its card.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <vector>

#include "reelgrad/doctor/testdata/fake_answers.h"

#define EXPORTED extern "C" __attribute__((visibility("default"), used))

namespace {

[[gnu::constructor]] void loaded() {
  fake::on_load(fake::text("NVML_ON_LOAD"));
}

}  // namespace

EXPORTED int nvmlInit_v2() {
  return static_cast<int>(fake::number("NVML_INIT", 0));
}

EXPORTED int nvmlShutdown() {
  return 0;
}

#ifndef REELGRAD_FAKE_BARE

namespace {

constexpr int kNotSupported = 3, kNotFound = 6, kTooSmall = 7;

struct Card {
  int index;
};
Card cards[16];
Card slices[16];

// 0, or what a lost card says.
int asked() {
  static long left = fake::number("NVML_CALLS", 1'000'000);
  return left-- > 0 ? 0 : static_cast<int>(fake::number("NVML_LOST", 999));
}

template <class Number>
int tell(Number* to, const char* name, long usual) {
  const int result = asked();
  const long value = fake::number(name, usual);
  if (result != 0) return result;
  if (value < 0) return kNotSupported;
  *to = static_cast<Number>(value);
  return 0;
}

struct Memory {
  unsigned long long total, free, used;
};

struct Process1 {
  unsigned pid;
  unsigned long long used;
};

struct Process2 {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

// "PID:MB,PID:MB"
template <class Process>
int list(const char* name, unsigned* count, Process* to) {
  std::vector<Process> all;
  std::istringstream words(fake::text(name));
  for (std::string word; std::getline(words, word, ',');) {
    Process process{};
    process.pid = static_cast<unsigned>(std::stoul(word));
    const std::size_t colon = word.find(':');
    process.used = colon == std::string::npos ? ~0ull : std::stoull(word.substr(colon + 1)) << 20;
    all.push_back(process);
  }
  const bool fits = all.size() <= *count;
  *count = static_cast<unsigned>(all.size());
  if (!fits) return kTooSmall;
  std::copy(all.begin(), all.end(), to);
  return asked();
}

}  // namespace

EXPORTED const char* nvmlErrorString(int code) {
  if (code == 9) return "Driver Not Loaded";
  if (code == 15) return "GPU is lost";
  if (code == 18) return "Driver/library version mismatch";
  return "Unknown Error";
}

EXPORTED int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "%s", fake::text("DRIVER", "580.65.06").c_str());
  return 0;
}

EXPORTED int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(fake::number("NVML_CARDS", fake::cards()));
  return 0;
}

EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** card) {
  cards[index].index = static_cast<int>(index);
  *card = &cards[index];
  return asked();
}

// The card of fake_cuda.cpp's UUIDs; with REELGRAD_FAKE_SLICES only as a slice.
EXPORTED int nvmlDeviceGetHandleByUUID(const char* uuid, void** card) {
  const bool slice = std::strncmp(uuid, "MIG-", 4) == 0;
  if (slice != (fake::number("SLICES", 0) == 1)) return kNotFound;
  const auto index = std::strtoul(uuid + std::strlen(uuid) - 1, nullptr, 10);
  *card = slice ? &slices[index] : &cards[index];
  return asked();
}

EXPORTED int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* slice, void** card) {
  auto* given = static_cast<Card*>(slice);
  if (given < slices || given >= slices + 16) return 2;
  *card = &cards[given - slices];
  return asked();
}

EXPORTED int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  memory->used = static_cast<unsigned long long>(fake::number("USED_MB", 700)) << 20;
  memory->total = 12288ull << 20;
  memory->free = memory->total - memory->used;
  return asked();
}

EXPORTED int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, Process1* to) {
  return list("COMPUTING", count, to);
}

EXPORTED int nvmlDeviceGetGraphicsRunningProcesses_v2(void*, unsigned* count, Process2* to) {
  return list("DRAWING", count, to);
}

EXPORTED int nvmlDeviceGetPowerUsage(void*, unsigned* value) {
  return tell(value, "POWER_MW", 31500);
}

EXPORTED int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* value) {
  return tell(value, "POWER_LIMIT_MW", 100'000);
}

EXPORTED int nvmlDeviceGetPowerManagementDefaultLimit(void*, unsigned* value) {
  return tell(value, "POWER_DEFAULT_MW", 170'000);
}

EXPORTED int nvmlDeviceGetClockInfo(void*, int kind, unsigned* value) {
  return kind == 1 ? tell(value, "CLOCK", 210) : kNotSupported;
}

EXPORTED int nvmlDeviceGetMaxClockInfo(void*, int kind, unsigned* value) {
  return kind == 1 ? tell(value, "CLOCK_MAX", 2100) : kNotSupported;
}

EXPORTED int nvmlDeviceGetTemperature(void*, int, unsigned* value) {
  return tell(value, "TEMPERATURE", 41);
}

EXPORTED int nvmlDeviceGetTemperatureThreshold(void*, int kind, unsigned* value) {
  return kind == 1 ? tell(value, "SLOWDOWN", 98) : kNotSupported;
}

EXPORTED int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* value) {
  return tell(value, "THROTTLE", 1);
}

EXPORTED int nvmlDeviceGetTotalEccErrors(void*, int kind, int counter, unsigned long long* value) {
  return kind == 1 && counter == 0 ? tell(value, "ECC", -1) : kNotSupported;
}

// REELGRAD_FAKE_MIG: the number of instances; not set: a card without MIG.
EXPORTED int nvmlDeviceGetMigMode(void*, unsigned* current, unsigned* pending) {
  if (fake::text("MIG").empty()) return kNotSupported;
  *current = *pending = 1;
  return asked();
}

EXPORTED int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return asked();
}

EXPORTED int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** slice) {
  if (index >= fake::number("MIG", 0)) return kNotFound;
  *slice = &slices[index];
  return asked();
}

EXPORTED int nvmlDeviceGetPersistenceMode(void*, int* value) {
  return tell(value, "PERSISTENCE", 0);
}

EXPORTED int nvmlDeviceGetComputeMode(void*, int* value) {
  return tell(value, "COMPUTE_MODE", 0);
}

EXPORTED int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* value) {
  return tell(value, "PCIE", 1);
}

EXPORTED int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* value) {
  return tell(value, "PCIE_MAX", 4);
}

EXPORTED int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* value) {
  return tell(value, "WIDTH", 4);
}

EXPORTED int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* value) {
  return tell(value, "WIDTH_MAX", 16);
}

#endif
