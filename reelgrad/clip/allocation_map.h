#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "reelgrad/clip/gpu_frames.h"

namespace reelgrad {

// Tells from a plane's address on the card in which allocation it lies, once enough planes have been exported to show
// that the driver lays addresses out like memory. Note [Anchors]: an allocation that is known is kept alive by one of
// its frames, so no other memory can have its addresses. Thread-safe.
class AllocationMap {
 public:
  // Of planes of each allocation that must be where they are expected before its addresses are relied upon.
  static constexpr int kProofs = 12;
  // Known at a time; the one unused for longest is forgotten, and its frame let go, first.
  static constexpr std::size_t kMost = 8;

  // The place of a plane that is alive; nullopt: only an export tells.
  std::optional<MemoryPlace> find(std::uint64_t address, std::size_t bytes);

  // What an export of a plane at `address` told; `frame` holds the plane. Once one contradicts what is known, nothing
  // is found any more, and no frame kept.
  void learn(std::uint64_t address, const MemoryPlace& place, std::shared_ptr<const void> frame);

 private:
  struct Allocation {
    std::uint64_t first = 0;  // its first byte's address
    std::size_t bytes = 0;
    int proofs = 0;
    std::uint64_t last_use = 0;
    std::shared_ptr<const void> anchor;
  };
  bool contradicts(std::uint64_t first, const MemoryPlace& place) const;
  std::map<std::uint64_t, Allocation> forgotten();

  std::mutex mutex_;
  std::map<std::uint64_t, Allocation> allocations_;  // by memory_id
  bool reliable_ = true;
  std::uint64_t uses_ = 0;
};

}  // namespace reelgrad
