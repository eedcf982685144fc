#include "reelgrad/clip/allocation_map.h"

#include <gtest/gtest.h>

namespace reelgrad {
namespace {

constexpr std::size_t kPlane = 100, kAllocation = 10'000;

class AllocationMapTest : public testing::Test {
 protected:
  // An allocation that begins at this address.
  static MemoryPlace place(std::uint64_t id, std::size_t offset) { return {id, kAllocation, offset}; }

  void prove(std::uint64_t id, std::uint64_t first) {
    for (std::size_t i = 0; i < AllocationMap::kProofs; ++i) {
      EXPECT_EQ(map_.find(first + i * kPlane, kPlane), std::nullopt) << i;
      map_.learn(first + i * kPlane, place(id, i * kPlane), frame_);
    }
  }

  AllocationMap map_;
  std::shared_ptr<const int> frame_ = std::make_shared<int>(0);
};

TEST_F(AllocationMapTest, FindsWhatLiesInAProvedAllocation) {
  prove(7, 50'000);
  EXPECT_EQ(map_.find(50'000, kPlane), place(7, 0));
  EXPECT_EQ(map_.find(54'321, kPlane), place(7, 4'321));
  EXPECT_EQ(map_.find(60'000 - kPlane, kPlane), place(7, kAllocation - kPlane));
  EXPECT_EQ(map_.find(60'001 - kPlane, kPlane), std::nullopt);
  EXPECT_EQ(map_.find(49'999, kPlane), std::nullopt);
  prove(8, 60'000);
  EXPECT_EQ(map_.find(60'123, kPlane), place(8, 123));
  EXPECT_EQ(map_.find(54'321, kPlane), place(7, 4'321));
}

TEST_F(AllocationMapTest, KeepsOneFrameOfEachAllocation) {
  prove(7, 50'000);
  EXPECT_EQ(frame_.use_count(), 2);
  prove(8, 60'000);
  EXPECT_EQ(frame_.use_count(), 3);
}

TEST_F(AllocationMapTest, ForgetsTheAllocationUnusedForLongest) {
  for (std::uint64_t id = 0; id < AllocationMap::kMost; ++id) prove(id, 100'000 * (id + 1));
  EXPECT_TRUE(map_.find(100'000, kPlane));
  prove(99, 10'000'000);
  EXPECT_TRUE(map_.find(100'000, kPlane));
  EXPECT_FALSE(map_.find(200'000, kPlane));
  EXPECT_EQ(frame_.use_count(), 1 + static_cast<long>(AllocationMap::kMost));
  map_.learn(200'000, place(42, 0), frame_);  // its addresses may be another's now
  EXPECT_TRUE(map_.find(400'000, kPlane));
}

TEST_F(AllocationMapTest, NothingIsFoundOnceAddressesAreNotLikeMemory) {
  prove(7, 50'000);
  map_.learn(51'000, place(7, 2'000), frame_);
  EXPECT_FALSE(map_.find(50'000, kPlane));
  EXPECT_EQ(frame_.use_count(), 1);
  for (std::uint64_t i = 0; i < 20; ++i) map_.learn(70'000, place(8, 0), frame_);
  EXPECT_FALSE(map_.find(70'000, kPlane));
  EXPECT_EQ(frame_.use_count(), 1);
}

TEST_F(AllocationMapTest, NorOnceTwoAllocationsShareAddresses) {
  prove(7, 50'000);
  map_.learn(59'999, place(8, 0), frame_);
  EXPECT_FALSE(map_.find(50'000, kPlane));
}

}  // namespace
}  // namespace reelgrad
