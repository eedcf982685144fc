// Running out of memory: telling it from other failures, and saying why it happened and what would help.
#pragma once
#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/doctor/card/driver.h"
#include "reelgrad/train/memory_plan.h"

namespace reelgrad {

// torch's own, cuDNN's and cuBLAS's, and the CPU allocator's. (CUDA's "illegal access" and the like are not.)
bool is_out_of_memory(const std::exception& error);

// The same of one device's memory: on a card it is not the host's (std::bad_alloc, the CPU allocator's), of which a
// smaller step takes no less.
bool is_out_of_memory(const std::exception& error, torch::Device device);

// The first line of its text, without torch's backtrace.
std::string first_line(const std::exception& error);

// Bytes, at the moment of a failed allocation.
struct MemoryNumbers {
  std::int64_t requested = 0;  // 0: not known
  std::int64_t free = 0, total = 0;
  std::int64_t allocated = 0;         // by this program: in use,
  std::int64_t reserved = 0;          // and in use or kept for later use
  std::optional<std::int64_t> limit;  // of this program's share, see MemoryLimit
  CardMemory card;
};

// too_large: more than is free. fragmented: what is kept for later use would do, but not in one piece. elsewhere: it is
// free, so the limit is another one (of the host's memory, or a driver's).
enum class MemoryCause { too_large, fragmented, elsewhere };
MemoryCause memory_cause(const MemoryNumbers& numbers);

// Several lines: the numbers, the cause, who else uses the card. On the CPU at most the size asked for.
std::string describe_memory(const MemoryNumbers& numbers);

// Three settings that would help, the smallest change first.
std::string memory_advice(const Config& config, const MemoryPlan& plan);

// With what the error's text says of the moment, and what the card says now.
MemoryNumbers memory_numbers(torch::Device device, const std::exception& error);

// While it lives torch's allocator leaves `reserve_mb` of what is free on the card now to others. Nothing on the CPU.
class MemoryLimit {
 public:
  MemoryLimit(torch::Device device, std::int64_t reserve_mb);
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit();

 private:
  torch::Device device_;
};

}  // namespace reelgrad
