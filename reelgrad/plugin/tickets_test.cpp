#include "reelgrad/plugin/tickets.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace reelgrad::vs {
namespace {

TEST(Tickets, OfThoseThatWaitTheLowestFrameGoesFirst) {
  Tickets tickets(1);
  auto taken = std::make_unique<Ticket>(tickets, 0);
  std::vector<int> served;  // by who has the only ticket
  std::atomic<int> begun = 0;
  std::vector<std::thread> threads;
  for (const int frame : {7, 3, 9, 3, 1}) {
    threads.emplace_back([&, frame] {
      ++begun;
      const Ticket ticket(tickets, frame);
      served.push_back(frame);
    });
  }
  while (begun < 5) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until they wait
  taken.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, (std::vector<int>{1, 3, 3, 7, 9}));
}

TEST(Tickets, NoMoreThreadsThanThereAreTickets) {
  Tickets tickets(3);
  { const Ticket first(tickets, 5), second(tickets, 4), third(tickets, 6); }
  std::atomic<int> inside = 0, too_many = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const Ticket ticket(tickets, 8 * i + t);
        if (++inside > 3) ++too_many;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(too_many, 0);
}

}  // namespace
}  // namespace reelgrad::vs
