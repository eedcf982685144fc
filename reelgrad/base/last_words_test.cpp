#include "reelgrad/base/last_words.h"

#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace reelgrad {
namespace {

// In a thread of its own, where nobody catches it.
template <class Failure>
void end_with(const Failure& failure) {
  install_last_words();
  std::thread([&] { throw failure; }).join();
}

TEST(LastWordsDeathTest, WithoutMemoryTheExitCodeSaysSo) {
  EXPECT_EXIT(end_with(std::bad_alloc()), testing::ExitedWithCode(4), "memory is used up");
  const std::system_error no_thread(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_EXIT(end_with(no_thread), testing::ExitedWithCode(4), "ulimit -v");
}

TEST(LastWordsDeathTest, AnythingElseAbortsAsEver) {
  EXPECT_EXIT(end_with(std::runtime_error("a fault of ours")), testing::KilledBySignal(SIGABRT), "a fault of ours");
}

}  // namespace
}  // namespace reelgrad
