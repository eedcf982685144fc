#include "reelgrad/clip/allocation_map.h"

#include <algorithm>
#include <utility>

namespace reelgrad {

std::optional<MemoryPlace> AllocationMap::find(std::uint64_t address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, allocation] : allocations_) {
    const std::uint64_t end = allocation.first + allocation.bytes;
    if (allocation.proofs < kProofs || address < allocation.first || address + bytes > end) continue;
    allocation.last_use = ++uses_;
    return MemoryPlace{id, allocation.bytes, address - allocation.first};
  }
  return std::nullopt;
}

void AllocationMap::learn(std::uint64_t address, const MemoryPlace& place, std::shared_ptr<const void> frame) {
  std::map<std::uint64_t, Allocation> dropped;  // without the lock: frames that go take VapourSynth's locks
  const std::lock_guard lock(mutex_);
  if (!reliable_) return;
  const std::uint64_t first = address - place.offset;
  if (contradicts(first, place)) {
    reliable_ = false;
    dropped = std::exchange(allocations_, {});
    return;
  }
  Allocation& allocation = allocations_[place.memory_id];
  if (!allocation.anchor) allocation = {.first = first, .bytes = place.memory_bytes, .anchor = std::move(frame)};
  ++allocation.proofs;
  allocation.last_use = ++uses_;
  dropped = forgotten();
}

// Expects the lock.
bool AllocationMap::contradicts(std::uint64_t first, const MemoryPlace& place) const {
  return std::ranges::any_of(allocations_, [&](const auto& entry) {
    const auto& [id, known] = entry;
    if (id == place.memory_id) return known.first != first || known.bytes != place.memory_bytes;
    return first < known.first + known.bytes && known.first < first + place.memory_bytes;
  });
}

// Expects the lock. What is one too many.
std::map<std::uint64_t, AllocationMap::Allocation> AllocationMap::forgotten() {
  std::map<std::uint64_t, Allocation> removed;
  if (allocations_.size() <= kMost) return removed;
  const auto oldest =
      std::ranges::min_element(allocations_, {}, [](const auto& entry) { return entry.second.last_use; });
  removed.insert(allocations_.extract(oldest));
  return removed;
}

}  // namespace reelgrad
