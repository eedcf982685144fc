#include "reelgrad/base/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace reelgrad {
namespace {

// Known answers published with Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesThePublishedAnswers) {
  constexpr std::uint32_t ones = 0xFFFFFFFF;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (PhiloxBlock{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Philox, AStreamIsTheBlocksOfItsCounterInOrder) {
  PhiloxStream stream(0x1122334455667788, 9, 0xAABBCCDD00112233);
  for (std::uint32_t block = 0; block < 3; ++block) {
    const PhiloxBlock expected = philox({block, 9, 0x00112233, 0xAABBCCDD}, {0x55667788, 0x11223344});
    for (const std::uint32_t word : expected) EXPECT_EQ(stream.next(), word);
  }
}

TEST(Philox, SeedsPurposesAndIndicesDoNotShareDraws) {
  std::set<std::uint32_t> firsts;
  for (std::uint64_t seed : {0, 1}) {
    for (std::uint32_t purpose : {0, 1}) {
      for (std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
        firsts.insert(PhiloxStream(seed, purpose, index).next());
      }
    }
  }
  EXPECT_EQ(firsts.size(), 12u);
}

TEST(Philox, BelowStaysInsideAndReachesEveryValueEquallyOften) {
  PhiloxStream stream(3, 1, 4);
  std::array<int, 10> counts{};
  for (int i = 0; i < 100'000; ++i) ++counts.at(static_cast<std::size_t>(stream.below(10)));
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);  // 5 standard deviations
}

TEST(Philox, UniformIsInTheUnitInterval) {
  PhiloxStream stream(3, 2, 4);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = stream.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.015);
}

}  // namespace
}  // namespace reelgrad
