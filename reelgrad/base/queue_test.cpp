#include "reelgrad/base/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

namespace reelgrad {
namespace {

TEST(BoundedQueue, DeliversInOrderAndNeverHoldsMoreThanItsCapacity) {
  BoundedQueue<int> queue(3);
  std::atomic<int> pushed{0};
  std::jthread producer([&] {
    for (int i = 0; i < 1'000; ++i) {
      ASSERT_TRUE(queue.push(i));
      ++pushed;
    }
    queue.close();
  });
  int popped = 0;
  while (const auto item = queue.pop()) {
    EXPECT_EQ(*item, popped++);
    // A pushed item is either popped or one of the three that wait; one push may not have been counted yet.
    EXPECT_LE(pushed.load(), popped + 3);
  }
  EXPECT_EQ(popped, 1'000);
}

TEST(BoundedQueue, ClosingDrainsThenEnds) {
  BoundedQueue<int> queue(4);
  queue.push(7);
  queue.close();
  EXPECT_FALSE(queue.push(8));
  EXPECT_EQ(queue.pop(), 7);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, ClosingWakesAProducerThatWaits) {
  BoundedQueue<int> queue(1);
  queue.push(1);
  bool taken = true;
  std::thread producer([&] { taken = queue.push(2); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  queue.close();
  producer.join();
  EXPECT_FALSE(taken);
}

TEST(BoundedQueue, RethrowsTheFirstFailureAfterTheItemsBeforeIt) {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  queue.push(std::make_unique<int>(5));
  queue.fail(std::make_exception_ptr(std::runtime_error("first")));
  queue.fail(std::make_exception_ptr(std::runtime_error("second")));
  EXPECT_EQ(**queue.pop(), 5);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      queue.pop();
      FAIL() << "pop() did not throw";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "first");
    }
  }
}

}  // namespace
}  // namespace reelgrad
