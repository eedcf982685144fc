#include "reelgrad/doctor/card/driver_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "reelgrad/doctor/card/cuda_driver.h"

namespace reelgrad {
namespace {

using Clock = std::chrono::steady_clock;
using CardPointer = unsigned long long;

constexpr std::size_t kHostBytes = 64 << 20;
constexpr std::size_t kCardBytes = 256 << 20;  // more than any card's cache holds
constexpr std::size_t kRoomForMore = std::size_t{3} << 29;
constexpr unsigned kThreads = 256;
constexpr std::uint32_t kFactor = 3, kAdded = 7;
constexpr std::chrono::milliseconds kWarmUp{60};  // an idle link and idle clocks need a while
constexpr std::chrono::milliseconds kMeasured{150};

// out[i] = 3 in[i] + added. Of an old version and for an old architecture, so that every driver translates it for its
// card.
constexpr const char* kKernelName = "reelgrad_trial";
constexpr const char* kKernel = R"(
.version 6.0
.target sm_50
.address_size 64

.visible .entry reelgrad_trial(.param .u64 in, .param .u64 out, .param .u32 count, .param .u32 added)
{
  .reg .pred %past;
  .reg .b32 %block, %threads, %thread, %index, %count, %added, %word;
  .reg .b64 %in, %out, %offset;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  ld.param.u32 %count, [count];
  ld.param.u32 %added, [added];
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %index, %block, %threads, %thread;
  setp.ge.u32 %past, %index, %count;
  @%past bra DONE;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %in, %in, %offset;
  add.u64 %out, %out, %offset;
  ld.global.u32 %word, [%in];
  mad.lo.u32 %word, %word, 3, %added;
  st.global.u32 [%out], %word;
DONE:
  ret;
}
)";

std::uint32_t pattern(std::size_t index) {
  return static_cast<std::uint32_t>(index) * 2654435761u;  // every bit of a word changes
}

CudaDevice device_of(const CudaDriver& cuda, const std::string& uuid) {
  int count = 0;
  cuda.demand("cuDeviceGetCount", &count);
  for (int index = 0; index < count; ++index) {
    CudaDevice device = 0;
    cuda.demand("cuDeviceGet", &device, index);
    const std::string found = cuda.uuid(device);
    if (!found.empty() && uuid.ends_with("-" + found)) return device;
  }
  fail(fmt::format("CUDA shows no device {}", uuid));
}

// The card's context, which takes all that was made in it along.
class Context {
 public:
  Context(const CudaDriver& cuda, CudaDevice device) : cuda_(cuda), device_(device) {
    void* context = nullptr;
    cuda_.demand("cuDevicePrimaryCtxRetain", &context, device_);
    if (const auto result = cuda_.call("cuCtxSetCurrent", context); result != 0) {
      release();
      fail(cuda_.failure("cuCtxSetCurrent", result));
    }
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { release(); }

 private:
  void release() {
    if (!cuda_.call("cuDevicePrimaryCtxRelease_v2", device_)) cuda_.call("cuDevicePrimaryCtxRelease", device_);
  }

  const CudaDriver& cuda_;
  CudaDevice device_;
};

class Trial {
 public:
  explicit Trial(const CudaDriver& cuda) : cuda_(cuda) {
    cuda_.demand("cuEventCreate", &begin_, 0u);
    cuda_.demand("cuEventCreate", &end_, 0u);
    card_bytes_ = roomy() ? kCardBytes : kHostBytes;
    cuda_.demand("cuMemAlloc_v2", &first_, card_bytes_);
    cuda_.demand("cuMemAlloc_v2", &second_, card_bytes_);
    host_in_ = pinned();
    host_out_ = pinned();
    for (std::size_t i = 0; i < host_in_.size(); ++i) host_in_[i] = pattern(i);
  }

  // The order is that of the data: host, first, second, first, host.
  TrialFacts run() {
    TrialFacts facts{.driver = Outcome::ok};
    facts.to_card_gbs = rate(kHostBytes, [&] {
      const void* from = host_in_.data();
      cuda_.demand("cuMemcpyHtoDAsync_v2", first_, from, kHostBytes, kStream);
    });
    launch();
    // Each byte is read and written.
    facts.card_memory_gbs =
        2 * rate(card_bytes_, [&] { cuda_.demand("cuMemcpyDtoDAsync_v2", first_, second_, card_bytes_, kStream); });
    facts.from_card_gbs = rate(kHostBytes, [&] {
      void* to = host_out_.data();
      cuda_.demand("cuMemcpyDtoHAsync_v2", to, first_, kHostBytes, kStream);
    });
    check();
    return facts;
  }

 private:
  static constexpr void* kStream = nullptr;

  bool roomy() const {
    std::size_t free = 0, total = 0;
    cuda_.demand("cuMemGetInfo_v2", &free, &total);
    return free >= kRoomForMore;
  }

  std::span<std::uint32_t> pinned() const {
    void* memory = nullptr;
    cuda_.demand("cuMemHostAlloc", &memory, kHostBytes, 0u);
    return {static_cast<std::uint32_t*>(memory), kHostBytes / sizeof(std::uint32_t)};
  }

  void launch() {
    void *module = nullptr, *kernel = nullptr;
    cuda_.demand("cuModuleLoadData", &module, static_cast<const void*>(kKernel));
    cuda_.demand("cuModuleGetFunction", &kernel, module, kKernelName);
    auto count = static_cast<std::uint32_t>(host_in_.size());
    std::uint32_t added = kAdded;
    std::array<void*, 4> arguments{&first_, &second_, &count, &added};
    void** extra = nullptr;
    cuda_.demand("cuLaunchKernel", kernel, (count + kThreads - 1) / kThreads, 1u, 1u, kThreads, 1u, 1u, 0u, kStream,
                 arguments.data(), extra);
    cuda_.demand("cuCtxSynchronize");
  }

  // GB/s of the quickest of the runs that fit in the time.
  double rate(std::size_t bytes, const std::function<void()>& copy) {
    for (const auto until = Clock::now() + kWarmUp; Clock::now() < until;) seconds(copy);
    double best = seconds(copy);
    for (const auto until = Clock::now() + kMeasured; Clock::now() < until;) best = std::min(best, seconds(copy));
    return best > 0 ? static_cast<double>(bytes) / best / 1e9 : 0;
  }

  double seconds(const std::function<void()>& copy) {
    cuda_.demand("cuEventRecord", begin_, kStream);
    copy();
    cuda_.demand("cuEventRecord", end_, kStream);
    cuda_.demand("cuEventSynchronize", end_);
    float milliseconds = 0;
    cuda_.demand("cuEventElapsedTime", &milliseconds, begin_, end_);
    return milliseconds / 1e3;
  }

  void check() const {
    for (std::size_t i = 0; i < host_out_.size(); ++i) {
      const std::uint32_t expected = kFactor * pattern(i) + kAdded;
      if (host_out_[i] != expected) {
        fail(fmt::format("the card computed {:08x} instead of {:08x} (word {} of {})", host_out_[i], expected, i,
                         host_out_.size()));
      }
    }
  }

  const CudaDriver& cuda_;
  std::size_t card_bytes_ = 0;
  void *begin_ = nullptr, *end_ = nullptr;
  CardPointer first_ = 0, second_ = 0;
  std::span<std::uint32_t> host_in_, host_out_;
};

}  // namespace

TrialFacts try_driver(const std::string& uuid) {
  try {
    const CudaDriver cuda;
    if (!cuda) fail(cuda.error());
    cuda.demand("cuInit", 0u);
    const Context context(cuda, device_of(cuda, uuid));
    return Trial(cuda).run();
  } catch (const Error& error) {
    return {.driver = Outcome::failed, .error = error.what()};
  }
}

}  // namespace reelgrad
