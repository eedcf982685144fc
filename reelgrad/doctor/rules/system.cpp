// Limits, memory and disk.
#include <algorithm>

#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

constexpr std::int64_t kFreeHandles = 32;        // PyTorch, the driver and VapourSynth open more than these
constexpr std::int64_t kFewHandles = 256;        // in all
constexpr std::int64_t kLeastMemlockKb = 8'192;  // Linux's own default since 5.16
constexpr std::int64_t kLeastShmMb = 512;        // Docker gives 64
constexpr std::int64_t kLeastDiskMb = 2'048;     // a few checkpoints
constexpr std::int64_t kNoDiskMb = 64;           // not even one
constexpr std::int64_t kLeastMemoryMb = 6'000;   // PyTorch with CUDA takes 3 GB before the first frame
constexpr int kOperatingSystem = 304;            // CUDA_ERROR_OPERATING_SYSTEM
constexpr std::string_view kTooMany = "too many open files";

bool is_nearly_out(const SystemFacts& system) {
  return system.open_files >= 0 && system.open_files_used >= 0 &&
         system.open_files_used > system.open_files - kFreeHandles;
}

bool ran_out_of_handles(const Facts& facts) {
  // What the driver answers then: CUDA_ERROR_OPERATING_SYSTEM.
  if (facts.driver.init_code == kOperatingSystem && is_nearly_out(facts.system)) return true;

  const auto says = [](const std::string& error) { return mentions(error, kTooMany); };
  return says(facts.driver.error) || says(facts.driver.nvml_error) || says(facts.torch.error) ||
         says(facts.vapoursynth.error) || says(facts.vulkan.error) || says(facts.python.error) ||
         says(facts.python.import_error) ||
         std::ranges::any_of(facts.devices, [&](const DeviceFacts& device) { return says(device.trial.error); }) ||
         std::ranges::any_of(facts.device_nodes, [&](const DeviceNodeFacts& node) { return says(node.error); });
}

void find_small_shm(const SystemFacts& system, bool several_cards, Drafts& drafts) {
  if (system.container.empty() || system.shm_mb < 0 || system.shm_mb >= kLeastShmMb) return;
  // One card needs no /dev/shm.
  drafts.add({.code = "SHM_SMALL",
              .severity = several_cards ? Severity::warning : Severity::info,
              .found = {{"SHM_SMALL.found", {{"mb", std::to_string(system.shm_mb)}}}},
              .fix = {{"SHM_SMALL.fix", {}}}});
}

void find_low_memlock(const Facts& facts, Drafts& drafts) {
  const std::int64_t kb = facts.system.memlock_kb;
  if (kb < 0 || kb >= kLeastMemlockKb) return;
  // The driver's pinned memory does not count against it; other ways of copying do.
  drafts.add({.code = "MEMLOCK_LOW",
              .severity = Severity::info,
              .found = {{"MEMLOCK_LOW.found", {{"kb", std::to_string(kb)}}}},
              .fix = {for_container("MEMLOCK_LOW.fix", facts)}});
}

}  // namespace

void find_file_handles(const Facts& facts, Drafts& drafts) {
  const std::int64_t limit = facts.system.open_files, used = facts.system.open_files_used;
  const bool ran_out = ran_out_of_handles(facts);
  const bool nearly = is_nearly_out(facts.system) || (limit >= 0 && limit < kFewHandles);
  if (!ran_out && !nearly) return;
  const bool blocks = has_no_devices(facts) || has_failed(facts.torch.outcome);
  std::vector<Phrase> found;
  if (limit >= 0 && used >= 0) {
    found.push_back(
        {"TOO_MANY_OPEN_FILES.found.counts", {{"used", std::to_string(used)}, {"limit", std::to_string(limit)}}});
  } else if (limit >= 0) {
    found.push_back({"TOO_MANY_OPEN_FILES.found.limit", {{"limit", std::to_string(limit)}}});
  }
  if (ran_out) found.push_back(error_text("Too many open files"));
  drafts.add({.code = "TOO_MANY_OPEN_FILES",
              .severity = ran_out && blocks ? Severity::error : Severity::warning,
              .found = found,
              .fix = {for_container("TOO_MANY_OPEN_FILES.fix", facts)}});
}

void find_small_memory(const Facts& facts, Drafts& drafts) {
  const SystemFacts& system = facts.system;
  find_small_shm(system, facts.devices.size() > 1, drafts);
  find_low_memlock(facts, drafts);
  Draft draft{.code = "MEMORY_LIMIT_SMALL", .severity = Severity::warning};
  if (system.memory_limit_mb >= 0 && system.memory_limit_mb < kLeastMemoryMb) {
    draft.found = {{"MEMORY_LIMIT_SMALL.found.limit", {{"mb", std::to_string(system.memory_limit_mb)}}}};
    draft.fix = {{"MEMORY_LIMIT_SMALL.fix.limit", {}}};
  } else if (system.ram_mb > 0 && system.ram_mb < kLeastMemoryMb) {
    draft.found = {{"MEMORY_LIMIT_SMALL.found.ram", {{"mb", std::to_string(system.ram_mb)}}}};
    draft.fix = {{"MEMORY_LIMIT_SMALL.fix.ram", {}}};
  }
  if (!draft.found.empty()) drafts.add(std::move(draft));
}

void find_full_disk(const Facts& facts, Drafts& drafts) {
  const std::int64_t free_mb = facts.system.run_free_mb;
  if (free_mb < 0 || free_mb >= kLeastDiskMb) return;
  const std::string dir = facts.system.run_dir.empty() ? "." : facts.system.run_dir;
  drafts.add({.code = "DISK_FULL",
              .severity = free_mb < kNoDiskMb ? Severity::error : Severity::warning,
              .found = {{"DISK_FULL.found", {{"mb", std::to_string(free_mb)}, {"dir", dir}}}},
              .fix = {{"DISK_FULL.fix", {}}}});
}

}  // namespace reelgrad
