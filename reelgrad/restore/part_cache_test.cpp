#include "reelgrad/restore/part_cache.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <future>
#include <latch>
#include <random>
#include <stdexcept>
#include <thread>

namespace reelgrad {
namespace {

using Names = std::vector<std::optional<NamedFrames>>;

NamedFrames frames_at(std::int64_t first) {
  return {.numbers = {first, first + 1, first + 2}};
}

// The parts of the window around frame n.
Names window_at(std::int64_t n) {
  return {frames_at(n - 2), frames_at(n - 1), frames_at(n)};
}

torch::Tensor features_of(const NamedFrames& name) {
  return torch::full({4}, static_cast<float>(name.numbers.front()));
}

class PartCacheTest : public testing::Test {
 protected:
  void use(int slots) {
    cache_ = std::make_unique<PartCache>(slots, torch::kCPU);
    if (slots % 2 == 0) cache_->allocate(torch::zeros({4}));
  }

  // What comes of the parts; counts what was made.
  std::vector<float> get(const Names& names) {
    PartCache::Held held(*cache_, names);
    return give(held, names);
  }

  std::vector<float> give(PartCache::Held& held, const Names& names) {
    std::vector<float> found(names.size(), -1);
    held.give(
        [&](int part) {
          ++made_;
          return features_of(names[static_cast<std::size_t>(part)].value_or(NamedFrames{.numbers = {77}}));
        },
        [&](int part, const torch::Tensor& features) {
          EXPECT_EQ(features.min().item<float>(), features.max().item<float>());
          found[static_cast<std::size_t>(part)] = features[0].item<float>();
        });
    return found;
  }

  std::unique_ptr<PartCache> cache_;
  std::atomic<int> made_ = 0;
};

TEST_F(PartCacheTest, InOrderEachPartIsMadeOnce) {
  use(4);
  for (int n = 2; n < 12; ++n) {
    const auto first = static_cast<float>(n - 2);
    EXPECT_EQ(get(window_at(n)), (std::vector<float>{first, first + 1, first + 2}));
  }
  EXPECT_EQ(made_, 12);
}

TEST_F(PartCacheTest, TheOneAskedForLongestAgoGoesFirst) {
  use(3);
  get(window_at(2));
  get({frames_at(0)});
  get({frames_at(9)});  // in place of 1
  EXPECT_EQ(made_, 4);
  get({frames_at(0), frames_at(2), frames_at(9)});
  EXPECT_EQ(made_, 4);
  get({frames_at(1)});
  EXPECT_EQ(made_, 5);
}

TEST_F(PartCacheTest, ANameIsAllThatATensorDependsOn) {
  use(8);
  const NamedFrames plain = frames_at(0);
  NamedFrames full_range = plain, gray = plain, repeated = plain;
  full_range.color.full_range = !plain.color.full_range;
  gray.picture = NetworkColor::gray;
  repeated.numbers = {0, 0, 2};
  get({plain, full_range, gray, repeated});
  EXPECT_EQ(made_, 4);
}

TEST_F(PartCacheTest, ThePartsOfASinglePictureAreMadeOnce) {
  use(3);
  const NamedFrames same{.numbers = {5, 5, 5}};
  EXPECT_EQ(get({same, same, same}), (std::vector<float>{5, 5, 5}));
  EXPECT_EQ(made_, 1);
}

TEST_F(PartCacheTest, WhatHasNoNameIsNotKept) {
  use(3);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(get({std::nullopt, frames_at(1)}), (std::vector<float>{77, 1}));
  EXPECT_EQ(made_, 3);
}

// A slot that the card may still read is not written to.
TEST_F(PartCacheTest, SlotsThatAreHeldStay) {
  use(3);
  PartCache::Held held(*cache_, window_at(2));
  give(held, window_at(2));
  EXPECT_EQ(get(window_at(12)), (std::vector<float>{10, 11, 12}));
  EXPECT_EQ(made_, 6);
  EXPECT_EQ(get(window_at(2)), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(made_, 6) << "the held ones are there, the others were not kept";
}

TEST_F(PartCacheTest, WhatIsBeingMadeIsWaitedFor) {
  use(3);
  std::latch begun(1), go_on(1);
  auto other = std::async(std::launch::async, [&] {
    PartCache::Held held(*cache_, {frames_at(0)});
    held.give(
        [&](int) {
          begun.count_down();
          go_on.wait();
          return features_of(frames_at(0));
        },
        [](int, const torch::Tensor&) {});
  });
  begun.wait();
  // What it has to make itself comes first: only that lets the other one go on.
  std::vector<float> found(2);
  PartCache::Held held(*cache_, {frames_at(0), frames_at(1)});
  held.give(
      [&](int part) {
        EXPECT_EQ(part, 1);
        go_on.count_down();
        return features_of(frames_at(1));
      },
      [&](int part, const torch::Tensor& features) {
        found[static_cast<std::size_t>(part)] = features[0].item<float>();
      });
  other.get();
  EXPECT_EQ(found, (std::vector<float>{0, 1}));
}

TEST_F(PartCacheTest, NothingIsKeptOfAMakerThatFails) {
  use(3);
  std::latch begun(1), waited_for(1);
  auto failing = std::async(std::launch::async, [&] {
    PartCache::Held held(*cache_, {frames_at(0), frames_at(1)});
    held.give(
        [&](int) -> torch::Tensor {
          begun.count_down();
          waited_for.wait();
          throw std::runtime_error("the card is gone");
        },
        [](int, const torch::Tensor&) {});
  });
  begun.wait();
  const Names names{frames_at(0), frames_at(1)};
  {
    PartCache::Held waiting(*cache_, names);
    waited_for.count_down();
    EXPECT_EQ(give(waiting, names), (std::vector<float>{0, 1}));
    EXPECT_EQ(made_, 2) << "by who waited";
  }
  EXPECT_THROW(failing.get(), std::runtime_error);
  EXPECT_EQ(get(names), (std::vector<float>{0, 1}));
  EXPECT_EQ(made_, 4);
  get(names);
  EXPECT_EQ(made_, 4) << "and kept as any other";
}

TEST_F(PartCacheTest, ManyThreadsWithFewSlots) {
  for (const int slots : {1, 4, 9}) {
    use(slots);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (int i = 0; i < 300; ++i) {
          const std::int64_t n = 2 + static_cast<std::int64_t>(random() % 6);
          const auto first = static_cast<float>(n - 2);
          if (get(window_at(n)) != std::vector<float>{first, first + 1, first + 2}) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << slots;
  }
}

}  // namespace
}  // namespace reelgrad
