#include "reelgrad/train/out_of_memory.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/frames/gpu_plane_import.h"

namespace reelgrad {
namespace {

// What the CPU's allocator says, and oneDNN, which refuses by other words what it cannot do.
constexpr std::array kHostTexts{"can't allocate memory", "could not create a primitive", "could not create a memory"};

// What libraries below torch say; they have no type of their own for it.
constexpr std::array kTexts{"CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED", "CUFFT_ALLOC_FAILED",
                            "cudaErrorMemoryAllocation", "CUDA error: out of memory"};

bool has_one_of(std::string_view text, std::span<const char* const> parts) {
  return std::ranges::any_of(parts, [&](const char* part) { return text.find(part) != std::string_view::npos; });
}

// A thread that cannot be started lacks memory for its stack, or is one too many.
bool is_of_the_host(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const auto* refused = dynamic_cast<const std::system_error*>(&error);
  if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again) return true;
  return has_one_of(error.what(), kHostTexts);
}

// The size at the beginning of `text`: "20.00 MiB. …" -> bytes.
std::int64_t parse_size(std::string_view text) {
  const std::string start(text.substr(0, 40));
  char* end = nullptr;
  const double number = std::strtod(start.c_str(), &end);
  const std::string_view unit(end);
  for (const auto& [name, bytes] : {std::pair{" GiB", 0x1p30}, std::pair{" MiB", 0x1p20}, std::pair{" KiB", 0x1p10}})
    if (unit.starts_with(name)) return static_cast<std::int64_t>(number * bytes);
  return static_cast<std::int64_t>(number);
}

// The size behind `words`; nullopt: the text has no such words.
std::optional<std::int64_t> size_behind(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  return parse_size(text.substr(at + words.size()));
}

// torch's message has the numbers of the moment; afterwards the failed step's memory counts as kept for later use.
// "… Of the allocated memory 825 MiB is allocated by PyTorch, and 24.85 MiB is reserved by PyTorch but unallocated. …"
void read_moment(std::string_view text, MemoryNumbers& numbers) {
  const auto of_the_host = size_behind(text, "you tried to allocate ");
  numbers.requested = of_the_host ? *of_the_host : size_behind(text, "Tried to allocate ").value_or(0);
  const auto allocated = size_behind(text, "Of the allocated memory ");
  const std::size_t end = text.find(" is reserved by PyTorch but unallocated");
  if (!allocated || end == std::string_view::npos) return;
  const std::size_t begin = text.rfind(" and ", end) + std::string_view(" and ").size();
  numbers.allocated = *allocated;
  numbers.reserved = *allocated + parse_size(text.substr(begin));
}

std::string size(std::int64_t bytes) {
  return format_bytes(static_cast<std::uintmax_t>(std::max<std::int64_t>(0, bytes)));
}

std::string describe_others(const MemoryNumbers& numbers) {
  std::string text;
  std::int64_t listed_mb = 0;
  for (const ProcessFacts& process : numbers.card.others) {
    const std::string name = process.name.empty() ? "" : fmt::format(" ({})", process.name);
    text += process.used_mb < 0 ? fmt::format("\nprocess {}{} uses it too", process.pid, name)
                                : fmt::format("\nprocess {}{} holds {} MiB", process.pid, name, process.used_mb);
    listed_mb += std::max<std::int64_t>(0, process.used_mb);
  }
  constexpr std::int64_t kContextsMb = 1024;  // this program's own, and the driver's
  const std::int64_t unlisted_mb = numbers.card.used_mb - listed_mb - (numbers.reserved >> 20);
  if (numbers.card.used_mb >= 0 && unlisted_mb > kContextsMb) {
    text += fmt::format("\n{} MiB are held by no process that can be seen from here", unlisted_mb);
  }
  return text;
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->kind() == ErrorKind::out_of_memory;
  return is_of_the_host(error) || has_one_of(error.what(), kTexts);
}

bool is_out_of_memory(const std::exception& error, torch::Device device) {
  return is_out_of_memory(error) && (device.is_cpu() || !is_of_the_host(error));
}

std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

MemoryCause memory_cause(const MemoryNumbers& numbers) {
  const std::int64_t unused = numbers.reserved - numbers.allocated;
  const std::int64_t left = numbers.limit ? std::min(numbers.free, *numbers.limit - numbers.reserved) : numbers.free;
  if (numbers.requested > 0 && numbers.requested <= left) return MemoryCause::elsewhere;
  return numbers.requested > 0 && unused >= numbers.requested ? MemoryCause::fragmented : MemoryCause::too_large;
}

std::string describe_memory(const MemoryNumbers& numbers) {
  std::string text = numbers.requested > 0 ? size(numbers.requested) + " were asked for" : "";
  if (numbers.total == 0) return text;  // nothing more is known of the CPU
  if (!text.empty()) text += "; ";
  text += fmt::format("{} of {} are free, this program uses {} and keeps {} for later use", size(numbers.free),
                      size(numbers.total), size(numbers.allocated), size(numbers.reserved - numbers.allocated));
  if (numbers.limit) text += fmt::format("; it may take {} (memory.reserve_mb)", size(*numbers.limit));
  switch (memory_cause(numbers)) {
    case MemoryCause::too_large:
      break;
    case MemoryCause::fragmented:
      text += "\nwhat it keeps would do, but lies in pieces: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps";
      break;
    case MemoryCause::elsewhere:
      text +=
          "\nthe card has that much: a limit of the host's memory (ulimit -v, a container, the page file) or of the "
          "driver stands in the way";
  }
  return text + describe_others(numbers);
}

std::string memory_advice(const Config& config, const MemoryPlan& plan) {
  std::vector<std::string> advice;
  if (config.memory.on_oom != "adapt") advice.emplace_back("memory.on_oom = \"adapt\"");
  if (config.memory.reserve_mb > 0)
    advice.push_back(fmt::format("memory.reserve_mb = {}", config.memory.reserve_mb / 4));
  if (plan.checkpointing.segments == 0) advice.emplace_back("memory.checkpointing = \"on\"");
  if (plan.parts < config.data.batch * config.optimizer.accumulate) {
    advice.push_back(fmt::format("data.batch = {} with optimizer.accumulate = {}", (config.data.batch + 1) / 2,
                                 config.optimizer.accumulate * 2));
  }
  if (config.data.crop_px > 16) advice.push_back(fmt::format("data.crop_px = {}", config.data.crop_px * 3 / 4));
  advice.emplace_back("a smaller network");
  advice.resize(std::min<std::size_t>(advice.size(), 3));
  return join(advice, "; ");
}

MemoryNumbers memory_numbers(torch::Device device, const std::exception& error) {
  MemoryNumbers numbers;
  read_moment(error.what(), numbers);
  if (!device.is_cuda()) return numbers;
  const c10::cuda::CUDAGuard guard(device);
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  numbers.free = static_cast<std::int64_t>(free);
  numbers.total = static_cast<std::int64_t>(total);
  if (numbers.reserved == 0) {
    numbers.allocated = stats.allocated_bytes[0].current;
    numbers.reserved = stats.reserved_bytes[0].current;
  }
  const double share = c10::cuda::CUDACachingAllocator::getMemoryFraction(device.index());
  if (share < 1) numbers.limit = static_cast<std::int64_t>(share * static_cast<double>(total));
  numbers.card = probe_card_memory(card_text(*card_of(device)));
  return numbers;
}

MemoryLimit::MemoryLimit(torch::Device device, std::int64_t reserve_mb) : device_(device) {
  if (!device.is_cuda()) return;
  const c10::cuda::CUDAGuard guard(device);
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  const auto held = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).reserved_bytes[0].current;
  const double ours = static_cast<double>(free) + static_cast<double>(held) - static_cast<double>(reserve_mb) * 0x1p20;
  const double share = std::clamp(ours / static_cast<double>(total), 0.0, 1.0);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(share, device.index());
}

MemoryLimit::~MemoryLimit() {
  if (device_.is_cuda()) c10::cuda::CUDACachingAllocator::setMemoryFraction(1, device_.index());
}

}  // namespace reelgrad
