#include "reelgrad/doctor/card/nvml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "reelgrad/doctor/card/cuda_driver.h"

namespace reelgrad {
namespace {

// nvmlReturn_t
constexpr int kNvmlNotSupported = 3, kNvmlTooSmall = 7, kNvmlCardLost = 15, kNvmlResetRequired = 16,
              kNvmlOperatingSystem = 17, kNvmlUnknown = 999;

constexpr unsigned kSmClock = 1;                              // NVML_CLOCK_SM
constexpr int kUncorrected = 1, kSinceLoad = 0;               // NVML_MEMORY_ERROR_TYPE_*, NVML_VOLATILE_ECC
constexpr int kDieSensor = 0;                                 // NVML_TEMPERATURE_GPU
constexpr int kSlowdownThreshold = 1, kCardMaxThreshold = 3;  // NVML_TEMPERATURE_THRESHOLD_*

constexpr unsigned version_of(std::size_t size, unsigned version) {
  return static_cast<unsigned>(size) | version << 24;
}

struct NvmlMemory {
  unsigned long long total, free, used;
};

struct NvmlMemory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct NvmlProcess1 {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known; likewise below
};

struct NvmlProcess2 {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

struct NvmlTemperature {
  unsigned version, sensor;
  int celsius;
};

struct ThrottleReason {
  unsigned long long bit;
  const char* name;
};
constexpr std::array<ThrottleReason, 9> kThrottleReasons{{{0x1, "gpu_idle"},
                                                          {0x2, "applications_clocks_setting"},
                                                          {0x4, "sw_power_cap"},
                                                          {0x8, "hw_slowdown"},
                                                          {0x10, "sync_boost"},
                                                          {0x20, "sw_thermal_slowdown"},
                                                          {0x40, "hw_thermal_slowdown"},
                                                          {0x80, "hw_power_brake_slowdown"},
                                                          {0x100, "display_clock_setting"}}};

// Says that the card is out of reach, not that one question has no answer.
bool means_lost(int code) {
  return code == kNvmlCardLost || code == kNvmlResetRequired || code == kNvmlOperatingSystem || code == kNvmlUnknown;
}

std::int64_t whole_megabytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>(bytes >> 20);
}

template <class Field, class Number>
void set_known(Field& field, const std::optional<Number>& value) {
  if (value) field = static_cast<Field>(*value);
}

void set_watts(double& field, const std::optional<unsigned>& milliwatts) {
  if (milliwatts) field = *milliwatts / 1000.0;
}

// A process that both computes and draws is listed twice, with the same memory.
void add_once(std::vector<ProcessFacts>& list, const ProcessFacts& process) {
  const auto same =
      std::find_if(list.begin(), list.end(), [&](const ProcessFacts& listed) { return listed.pid == process.pid; });
  if (same == list.end())
    list.push_back(process);
  else
    same->used_mb = std::max(same->used_mb, process.used_mb);
}

std::string process_name(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

// A child of the doctor's (probe_child.h), this one or another: it is gone when the report is read.
bool is_a_probe(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
  std::string program, command;
  std::getline(file, program, '\0');
  std::getline(file, command, '\0');
  return program.ends_with("reelgrad") && command == "probe";
}

}  // namespace

Nvml::Nvml() : library_("libnvidia-ml.so.1"), started_(library_.call("nvmlInit_v2")) {}

Nvml::~Nvml() {
  if (started_ == 0) library_.call("nvmlShutdown");
}

std::string Nvml::words_of(int code) const {
  auto* words = library_.function<const char*(int)>("nvmlErrorString");
  const char* text = words ? words(code) : nullptr;
  return text ? text : "unknown error";
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  const auto size = static_cast<unsigned>(text.size() - 1);
  const bool told = started_ == 0 && library_.succeeds("nvmlSystemGetDriverVersion", text.data(), size);
  // Where it cannot be started, its file's name still tells the version of the driver's libraries.
  return told ? text.data() : driver_version_in(library_.file_of("nvmlInit_v2"));
}

void Nvml::describe(DriverFacts& facts) const {
  if (const std::string version = driver_version(); !version.empty()) facts.version = version;
  if (!library_) {
    facts.nvml_error = library_.error();
    return;
  }
  if (!started_) {
    facts.nvml_error = "libnvidia-ml.so.1 has no nvmlInit_v2";
    return;
  }
  facts.nvml_code = *started_;
  if (started_ != 0) {
    facts.nvml_error = fmt::format("nvmlInit_v2 says {} ({})", *started_, words_of(*started_));
    return;
  }
  const auto count = ask("nvmlDeviceGetCount_v2");
  set_known(facts.nvml_cards, count);
  for (unsigned index = 0; index < count.value_or(0); ++index) visit_card(index, facts);
}

void Nvml::visit_card(unsigned index, DriverFacts& facts) const {
  Card card = nullptr;
  const char* function = "nvmlDeviceGetHandleByIndex_v2";
  std::optional<int> result = library_.call(function, index, &card);
  if (result == 0) {
    NvmlMemory memory{};
    function = "nvmlDeviceGetMemoryInfo";
    result = library_.call(function, card, &memory);
  }
  if (facts.nvml_code == 0 && means_lost(result.value_or(0))) {
    facts.nvml_code = *result;
    facts.nvml_error = fmt::format("{} says {} ({})", function, *result, words_of(*result));
  }
  if (!card) return;
  DeviceFacts found;
  describe_mig(card, found);
  if (found.mig == true && found.mig_instances == 0) ++facts.mig_without_instance;
  if (compute_mode_name(ask<int>("nvmlDeviceGetComputeMode", card).value_or(-1)) == "prohibited")
    ++facts.compute_prohibited;
}

Nvml::Card Nvml::card(const std::string& uuid) const {
  if (started_ != 0) return nullptr;
  return ask<Card>("nvmlDeviceGetHandleByUUID", uuid.c_str()).value_or(nullptr);
}

std::optional<Nvml::Memory> Nvml::memory(const std::string& uuid) const {
  return memory(card(uuid));
}

std::optional<Nvml::Memory> Nvml::memory(Card card) const {
  if (!card) return std::nullopt;
  // The older version counts what the driver itself reserves as used.
  NvmlMemory2 newer{.version = version_of(sizeof(NvmlMemory2), 2)};
  if (library_.succeeds("nvmlDeviceGetMemoryInfo_v2", card, &newer)) return Memory{newer.free, newer.used};
  const auto older = ask<NvmlMemory>("nvmlDeviceGetMemoryInfo", card);
  if (!older) return std::nullopt;
  return Memory{older->free, older->used};
}

template <class Process>
std::optional<std::vector<ProcessFacts>> Nvml::running(const char* function, Card card) const {
  std::vector<Process> list(64);
  auto count = static_cast<unsigned>(list.size());
  std::optional<int> result = library_.call(function, card, &count, list.data());
  if (result == kNvmlTooSmall) {
    list.resize(count + 16);  // some may have come since
    count = static_cast<unsigned>(list.size());
    result = library_.call(function, card, &count, list.data());
  }
  if (result != 0) return std::nullopt;
  std::vector<ProcessFacts> found;
  for (unsigned i = 0; i < std::min<std::size_t>(count, list.size()); ++i) {
    if (is_a_probe(list[i].pid)) continue;
    const bool known = list[i].used_bytes != ~0ull;
    found.push_back({.pid = static_cast<int>(list[i].pid),
                     .name = process_name(list[i].pid),
                     .used_mb = known ? whole_megabytes(list[i].used_bytes) : -1});
  }
  return found;
}

std::vector<ProcessFacts> Nvml::processes(const std::string& uuid) const {
  return processes(card(uuid));
}

std::vector<ProcessFacts> Nvml::processes(Card card) const {
  std::vector<ProcessFacts> all;
  if (!card) return all;
  for (const std::string kind : {"Compute", "Graphics"}) {
    const std::string function = "nvmlDeviceGet" + kind + "RunningProcesses";
    // The second version before the third, whose entries grew and shrank again between drivers of one name.
    auto found = running<NvmlProcess2>((function + "_v2").c_str(), card);
    if (!found) found = running<NvmlProcess2>((function + "_v3").c_str(), card);
    if (!found) found = running<NvmlProcess1>(function.c_str(), card);
    if (!found) continue;
    for (const ProcessFacts& process : *found) add_once(all, process);
  }
  return all;
}

void Nvml::describe(DeviceFacts& facts) const {
  Card found = card(facts.uuid);
  if (!found && facts.uuid.starts_with("GPU-")) {
    const std::string slice = "MIG-" + facts.uuid.substr(4);
    found = card(slice);
    if (found) facts.uuid = slice;
  }
  if (!found) return;
  if (const auto bytes = memory(found)) {
    facts.memory_free_mb = whole_megabytes(bytes->free);
    facts.memory_used_mb = whole_megabytes(bytes->used);
  }
  facts.processes = processes(found);
  // A slice has memory and processes of its own; all else is its card's.
  const Card whole = ask<Card>("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", found).value_or(found);
  if (const auto mode = ask<int>("nvmlDeviceGetComputeMode", whole)) facts.compute_mode = compute_mode_name(*mode);
  if (const auto mode = ask<int>("nvmlDeviceGetPersistenceMode", whole)) facts.persistence = *mode == 1;
  set_known(facts.ecc_uncorrected,
            ask<unsigned long long>("nvmlDeviceGetTotalEccErrors", whole, kUncorrected, kSinceLoad));
  describe_mig(whole, facts);
  describe_power(whole, facts);
  describe_heat(whole, facts);
  describe_link(whole, facts);
}

void Nvml::describe_mig(Card card, DeviceFacts& facts) const {
  unsigned current = 0, pending = 0;
  const std::optional<int> result = library_.call("nvmlDeviceGetMigMode", card, &current, &pending);
  if (result == kNvmlNotSupported) facts.mig = false;
  if (result != 0) return;
  facts.mig = current == 1;
  const auto places = ask("nvmlDeviceGetMaxMigDeviceCount", card);
  if (current != 1 || !places) return;
  facts.mig_instances = 0;
  for (unsigned i = 0; i < *places; ++i) {
    if (ask<Card>("nvmlDeviceGetMigDeviceHandleByIndex", card, i)) ++facts.mig_instances;
  }
}

void Nvml::describe_power(Card card, DeviceFacts& facts) const {
  set_watts(facts.power_w, ask("nvmlDeviceGetPowerUsage", card));
  // What counts in the end; laptops tell nothing but that.
  set_watts(facts.power_limit_w, ask("nvmlDeviceGetEnforcedPowerLimit", card));
  if (facts.power_limit_w < 0) set_watts(facts.power_limit_w, ask("nvmlDeviceGetPowerManagementLimit", card));
  set_watts(facts.power_limit_default_w, ask("nvmlDeviceGetPowerManagementDefaultLimit", card));
  set_known(facts.clock_mhz, ask("nvmlDeviceGetClockInfo", card, kSmClock));
  set_known(facts.clock_max_mhz, ask("nvmlDeviceGetMaxClockInfo", card, kSmClock));
}

void Nvml::describe_heat(Card card, DeviceFacts& facts) const {
  set_known(facts.temperature_c, ask("nvmlDeviceGetTemperature", card, kDieSensor));
  NvmlTemperature newer{.version = version_of(sizeof(NvmlTemperature), 1), .sensor = kDieSensor};
  if (facts.temperature_c < 0 && library_.succeeds("nvmlDeviceGetTemperatureV", card, &newer))
    facts.temperature_c = newer.celsius;
  set_known(facts.temperature_slowdown_c, ask("nvmlDeviceGetTemperatureThreshold", card, kSlowdownThreshold));
  if (facts.temperature_slowdown_c <= 0)
    set_known(facts.temperature_slowdown_c, ask("nvmlDeviceGetTemperatureThreshold", card, kCardMaxThreshold));
  auto reasons = ask<unsigned long long>("nvmlDeviceGetCurrentClocksEventReasons", card);
  // Its name before the driver 535.
  if (!reasons) reasons = ask<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", card);
  for (const ThrottleReason& reason : kThrottleReasons) {
    if (reasons.value_or(0) & reason.bit) facts.throttle_reasons.emplace_back(reason.name);
  }
}

void Nvml::describe_link(Card card, DeviceFacts& facts) const {
  set_known(facts.pcie_generation, ask("nvmlDeviceGetCurrPcieLinkGeneration", card));
  set_known(facts.pcie_generation_max, ask("nvmlDeviceGetMaxPcieLinkGeneration", card));
  set_known(facts.pcie_width, ask("nvmlDeviceGetCurrPcieLinkWidth", card));
  set_known(facts.pcie_width_max, ask("nvmlDeviceGetMaxPcieLinkWidth", card));
}

}  // namespace reelgrad
