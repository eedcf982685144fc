// Networks that work in two stages: what is kept of a window's parts changes no picture.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/restore/test_networks.h"
#include "reelgrad/restore/test_pictures.h"

namespace reelgrad {
namespace {

using test::bytes_of_picture;
using test::clip_of_noise;

constexpr int kFrames = 24;
constexpr int kCut = 10;  // the first frame of another scene

// Frames n - 2 to n + 2, but not beyond the clip's ends and the cut.
std::vector<int> staged_window(int n) {
  const int first = n < kCut ? 0 : kCut, last = n < kCut ? kCut - 1 : kFrames - 1;
  std::vector<int> numbers;
  for (int i = n - 2; i <= n + 2; ++i) numbers.push_back(std::clamp(i, first, last));
  return numbers;
}

RestoreCall staged_call(const std::vector<OwnedPicture>& clip, int n, bool numbered = true) {
  RestoreCall call{.clip = "clip", .frame = n};
  for (const int i : staged_window(n)) {
    call.window.push_back(
        {clip[static_cast<std::size_t>(i)].view(), numbered ? std::optional<std::int64_t>(i) : std::nullopt});
  }
  return call;
}

std::string restored_by(Restorer& restorer, const RestoreCall& call) {
  const FrameView& view = call.window.front().view;
  OwnedPicture out(view.format, view.width * restorer.info().scale, view.height * restorer.info().scale);
  restorer.restore(call, {out.mutable_view()});
  return bytes_of_picture(out);
}

using Pictures = std::vector<std::string>;

Pictures in_order(Restorer& restorer, const std::vector<OwnedPicture>& clip, const std::vector<int>& order,
                  bool numbered = true) {
  Pictures pictures(clip.size());
  for (const int n : order)
    pictures[static_cast<std::size_t>(n)] = restored_by(restorer, staged_call(clip, n, numbered));
  return pictures;
}

Pictures from_threads(Restorer& restorer, const std::vector<OwnedPicture>& clip, const std::vector<int>& order) {
  Pictures pictures(clip.size());
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < order.size(); i = next++) {
        pictures[static_cast<std::size_t>(order[i])] = restored_by(restorer, staged_call(clip, order[i]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return pictures;
}

std::vector<int> linear_order(int frames = kFrames) {
  std::vector<int> order(static_cast<std::size_t>(frames));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> random_order() {
  std::vector<int> order = linear_order();
  std::shuffle(order.begin(), order.end(), std::mt19937(4));
  return order;
}

class RestorerStages : public testing::Test {
 protected:
  Restorer make(RestoreOptions options = {}, bool noise_level = false) {
    network_ = std::make_shared<StagedMixer>(noise_level);
    return Restorer(network_, NetworkSpec{.window = 5}, options);
  }
  // Runs of the first stage since the last time.
  int firsts() { return network_->firsts.exchange(0); }

  const std::vector<OwnedPicture> clip_ = clip_of_noise(VideoFormat{}, 20, 12, kFrames);
  std::shared_ptr<StagedMixer> network_;
};

TEST_F(RestorerStages, AFrameIsTheSameInAnyOrderAndWhateverIsKept) {
  Restorer restorer = make({.streams = 1});
  const Pictures expected = in_order(restorer, clip_, linear_order(), /*numbered=*/false);
  EXPECT_NE(expected[3], expected[4]);
  EXPECT_NE(expected[kCut - 1], expected[kCut]);
  EXPECT_GE(firsts(), 3 * kFrames) << "nothing to know a part again by";

  EXPECT_TRUE(in_order(restorer, clip_, linear_order()) == expected);
  // A part a frame, and two more where a scene begins.
  EXPECT_EQ(firsts(), kFrames + 2 * 2);
  EXPECT_TRUE(in_order(restorer, clip_, random_order()) == expected);
  EXPECT_LE(firsts(), 3 * kFrames);

  // Without stages, as tiles are.
  Restorer tiles = make({.tile_px = 8, .overlap_px = 0, .streams = 1});
  EXPECT_TRUE(in_order(tiles, clip_, linear_order()) == expected);
  EXPECT_EQ(firsts(), 0);
}

TEST_F(RestorerStages, ParallelRequestsShareWhatTheyHaveInCommon) {
  Restorer one = make({.streams = 1});
  const Pictures expected = in_order(one, clip_, linear_order());
  for (const int streams : {2, 4}) {
    Restorer several = make({.streams = streams});
    for (int run = 0; run < 5; ++run) {
      EXPECT_TRUE(from_threads(several, clip_, linear_order()) == expected) << streams;
      EXPECT_TRUE(from_threads(several, clip_, random_order()) == expected) << streams;
    }
  }
}

TEST_F(RestorerStages, AFrameThatFailsSpoilsNoOther) {
  Restorer restorer = make({.streams = 3});
  const Pictures expected = in_order(restorer, clip_, linear_order());
  for (int run = 0; run < 10; ++run) {
    network_->fails = true;
    std::atomic<int> failed = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, n = (5 * run + t) % kFrames] {
        for (;;) {
          try {
            EXPECT_TRUE(restored_by(restorer, staged_call(clip_, n)) == expected[static_cast<std::size_t>(n)]);
            return;
          } catch (const std::runtime_error&) {
            ++failed;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed, network_->fails.exchange(false) ? 0 : 1);
  }
}

// All of a window is read as its middle frame says.
TEST_F(RestorerStages, AFrameIsReadAsEachWindowSays) {
  std::vector<OwnedPicture> clip = clip_of_noise({ColorFamily::yuv, SampleType::integer, 8, 1, 1}, 20, 12, kFrames);
  for (int n = 0; n < kFrames; ++n) {
    const OwnedPicture& plain = clip[static_cast<std::size_t>(n)];
    ColorProps color = plain.view().color;
    color.matrix = n % 3 == 0 ? 6 : 1;
    OwnedPicture tagged(plain.view().format, 20, 12, color);
    std::copy_n(plain.view().planes[0].data, plain.size_bytes(), tagged.mutable_view().planes[0].data);
    clip[static_cast<std::size_t>(n)] = std::move(tagged);
  }
  Restorer restorer = make({.streams = 1});
  const Pictures expected = in_order(restorer, clip, linear_order(), /*numbered=*/false);
  EXPECT_TRUE(in_order(restorer, clip, linear_order()) == expected);
  EXPECT_TRUE(in_order(restorer, clip, random_order()) == expected);
}

TEST_F(RestorerStages, APictureOfNoiseLevelsIsSeenAnew) {
  Restorer restorer = make({.streams = 1, .sigma = 10.0}, /*noise_level=*/true);
  const Pictures by_number = in_order(restorer, clip_, linear_order());
  firsts();
  OwnedPicture map(VideoFormat{ColorFamily::gray}, 20, 12);
  const MutableFrameView view = map.mutable_view();
  const auto with_level = [&](int level) {
    for (int y = 0; y < 12; ++y) {
      std::fill_n(view.planes[0].data + y * view.planes[0].stride_bytes, 20, static_cast<std::byte>(level));
    }
    RestoreCall call = staged_call(clip_, 6);
    call.sigma = map.view();
    return restored_by(restorer, call);
  };
  EXPECT_TRUE(with_level(10) == by_number[6]);
  EXPECT_FALSE(with_level(40) == by_number[6]);
  EXPECT_EQ(firsts(), 2 * 3);
  EXPECT_TRUE(restored_by(restorer, staged_call(clip_, 6)) == by_number[6]);
}

TEST_F(RestorerStages, WithoutMemoryForThemItWorksAsAWhole) {
  Restorer restorer = make({.streams = 2});
  const Pictures expected = in_order(restorer, clip_, linear_order());
  Restorer tight = make({.streams = 2});
  restored_by(tight, staged_call(clip_, 0));
  network_->memory_is_short = true;
  EXPECT_TRUE(in_order(tight, clip_, linear_order()) == expected);
  EXPECT_EQ(tight.describe(), "whole frames, fp32, cpu, 2 streams");
  firsts();
  in_order(tight, clip_, linear_order());
  EXPECT_EQ(firsts(), 0);
}

// The architectures that work so, with what is done around them.
Restorer seeded_restorer(const NetworkSpec& spec, const RestoreOptions& options) {
  torch::manual_seed(3);
  return Restorer(make_network(spec), spec, options);
}

const VideoFormat kStagedYuv420{ColorFamily::yuv, SampleType::integer, 8, 1, 1};

void expect_the_same_kept_and_fresh(const NetworkSpec& spec) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kStagedYuv420, 36, 24, kFrames);
  Restorer kept = seeded_restorer(spec, {.strength = 0.75}), fresh = seeded_restorer(spec, {.strength = 0.75});
  restored_by(kept, staged_call(clip, 4));
  EXPECT_TRUE(restored_by(kept, staged_call(clip, 5)) == restored_by(fresh, staged_call(clip, 5, false)));
}

TEST(RestorerStagesOfNetworksSlow, TscunetIsTheSameKeptAndFresh) {
  expect_the_same_kept_and_fresh({.arch = "tscunet", .scale = 2, .window = 5, .options = {{"blocks", "1"}}});
}

TEST(RestorerStagesOfNetworks, FastDvdnetIsTheNetwork) {
  for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
    const NetworkSpec spec{
        .arch = "fastdvdnet", .scale = 1, .window = 5, .color = color, .options = {{"features", "4"}}};
    expect_the_same_kept_and_fresh(spec);
    const std::vector<OwnedPicture> clip = clip_of_noise(kStagedYuv420, 36, 24, kFrames);
    // Each of the two tiles reads all of the picture, and goes through the network as a whole.
    Restorer tiles = seeded_restorer(spec, {.tile_px = 28, .overlap_px = 28, .strength = 0.75});
    Restorer stages = seeded_restorer(spec, {.strength = 0.75});
    const std::string a = restored_by(tiles, staged_call(clip, 5)), b = restored_by(stages, staged_call(clip, 5));
    int largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<unsigned char>(a[i]) - static_cast<unsigned char>(b[i])));
    }
    EXPECT_LE(largest, 1);
  }
}

}  // namespace
}  // namespace reelgrad
