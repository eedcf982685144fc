#include "reelgrad/data/wait_meter.h"

#include <gtest/gtest.h>

namespace reelgrad {
namespace {

using std::chrono::seconds;

WaitMeter::Clock::time_point at(double second) {
  return WaitMeter::Clock::time_point() +
         std::chrono::duration_cast<WaitMeter::Clock::duration>(std::chrono::duration<double>(second));
}

TEST(WaitMeter, TakesTheSecondsOnce) {
  WaitMeter meter(seconds(30));
  meter.add(at(1), at(3));
  meter.add(at(4), at(4.5));
  EXPECT_DOUBLE_EQ(meter.take_seconds(), 2.5);
  EXPECT_DOUBLE_EQ(meter.take_seconds(), 0);
}

TEST(WaitMeter, SaysNothingBeforeAWholeWindow) {
  WaitMeter meter(seconds(30));
  EXPECT_FALSE(meter.share(at(100)));
  meter.start(at(100));
  meter.add(at(100), at(129));
  EXPECT_FALSE(meter.share(at(129)));
  EXPECT_NEAR(*meter.share(at(130)), 29.0 / 30, 1e-9);
}

TEST(WaitMeter, TheFirstFillDoesNotCount) {
  WaitMeter meter(seconds(10));
  meter.add(at(0), at(50));
  meter.start(at(50));
  EXPECT_DOUBLE_EQ(*meter.share(at(60)), 0);
}

TEST(WaitMeter, OldWaitsLeaveTheWindowGradually) {
  WaitMeter meter(seconds(10));
  meter.start(at(0));
  meter.add(at(2), at(6));
  EXPECT_NEAR(*meter.share(at(10)), 0.4, 1e-9);
  EXPECT_NEAR(*meter.share(at(14)), 0.2, 1e-9);
  EXPECT_NEAR(*meter.share(at(16)), 0.0, 1e-9);
}

}  // namespace
}  // namespace reelgrad
