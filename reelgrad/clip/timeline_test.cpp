#include "reelgrad/clip/timeline.h"

#include <gtest/gtest.h>

#include <vector>

namespace reelgrad {
namespace {

TEST(Timeline, MixedDurationsStayExact) {
  // 1/24 + 1/24 + 1/12 + 1001/24000 + 1/30 + 1/24 s
  Timeline timeline({24000, 1001});
  for (const Rational d : std::vector<Rational>{{1, 24}, {1, 24}, {1, 12}, {1001, 24000}, {1, 30}, {1, 24}}) {
    timeline.advance(d);
  }
  ASSERT_EQ(timeline.ticks_per_second() % 24000, 0);
  EXPECT_EQ(timeline.now() * 24000, timeline.ticks_per_second() * (1000 + 1000 + 2000 + 1001 + 800 + 1000));
}

TEST(Timeline, UnlikeDurationsDoNotDrift) {
  Timeline timeline({25, 1});
  for (int i = 0; i < 70000; ++i) timeline.advance({1, 7});
  EXPECT_EQ(timeline.now(), timeline.ticks_per_second() * 10000);
  for (int i = 0; i < 11000; ++i) timeline.advance({1, 11});
  EXPECT_EQ(timeline.now(), timeline.ticks_per_second() * 11000);
}

TEST(Timeline, HoursOfHugeDenominatorsStayWithinATick) {
  Timeline timeline({0, 1});
  for (int i = 0; i < 100000; ++i) timeline.advance({33366667 + i % 2, 1000000000});
  EXPECT_NEAR(static_cast<double>(timeline.now()), 720000.0 * (100000 * 0.033366667 + 50000e-9), 1.0);
}

TEST(Timeline, MissingDurationsAreOneFrame) {
  Timeline ntsc({30000, 1001});
  for (int i = 0; i < 30000; ++i) ntsc.advance({0, 1});
  EXPECT_EQ(ntsc.now(), ntsc.ticks_per_second() * 1001);
  Timeline unknown({0, 1});
  unknown.advance({0, 1});
  EXPECT_EQ(unknown.now() * 25, unknown.ticks_per_second());
}

TEST(Timeline, UnusualFrameRatesFit) {
  Timeline timeline({17, 1});
  for (int i = 1; i <= 17; ++i) {
    timeline.advance({1, 17});
    EXPECT_EQ(timeline.now() * 17, timeline.ticks_per_second() * i);
  }
}

TEST(FitsRate, TakesWhatMatroskaRoundsToMilliseconds) {
  EXPECT_TRUE(fits_rate({1001, 24000}, {24000, 1001}));
  EXPECT_TRUE(fits_rate({42, 1000}, {24, 1}));
  EXPECT_TRUE(fits_rate({33, 1000}, {30, 1}));
  EXPECT_FALSE(fits_rate({83, 1000}, {24, 1}));
  EXPECT_FALSE(fits_rate({1, 24}, {0, 1}));
  EXPECT_FALSE(fits_rate({0, 1}, {24, 1}));
}

TEST(Timeline, GoesOnFromAPositionAsIfNeverLeft) {
  const Rational fps{24000, 1001};
  Timeline whole(fps), first(fps);
  for (int i = 0; i < 10; ++i) {
    whole.advance({1, 7});
    if (i < 4) first.advance({1, 7});
  }
  Timeline second(fps, first.position());
  for (int i = 4; i < 10; ++i) second.advance({1, 7});
  EXPECT_EQ(second.position(), whole.position());
  EXPECT_EQ(second.now(), whole.now());
}

}  // namespace
}  // namespace reelgrad
