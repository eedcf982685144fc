// For tests: what hostile files may cost.
#pragma once
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

namespace reelgrad::test {

// For as long as it lives, the process cannot take more than `bytes` of address space beyond what it has: whoever asks
// for more fails with std::bad_alloc. Nothing under AddressSanitizer, which takes what it needs itself.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t bytes) {
#ifndef __SANITIZE_ADDRESS__
    ::getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    ::setrlimit(RLIMIT_AS, &limit);
#else
    static_cast<void>(bytes);
#endif
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit() {
#ifndef __SANITIZE_ADDRESS__
    ::setrlimit(RLIMIT_AS, &before_);
#endif
  }

 private:
  [[maybe_unused]] rlimit before_{};
};

// Runs `work` within a second (many under a sanitizer) and 100 MB.
template <class Work>
void expect_cheap(Work&& work) {
#ifdef __SANITIZE_ADDRESS__
  constexpr std::chrono::seconds kLimit(20);
#else
  constexpr std::chrono::seconds kLimit(1);
#endif
  const auto start = std::chrono::steady_clock::now();
  {
    const MemoryLimit limit(100'000'000);
    work();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLimit);
}

}  // namespace reelgrad::test
