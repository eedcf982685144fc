// Calls that restore several pictures: windows, threads, noise levels, all frames of a window.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "reelgrad/base/error.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/restore/test_networks.h"
#include "reelgrad/restore/test_pictures.h"

namespace reelgrad {
namespace {

using test::bytes_of_picture;
using test::clip_of_noise;

constexpr VideoFormat kYuv{ColorFamily::yuv, SampleType::integer, 8, 1, 1};

// Frames n - radius to n + radius, the clip's ends repeated.
RestoreCall call_for(const std::vector<OwnedPicture>& clip, int n, int window) {
  RestoreCall call{.clip = "clip", .frame = n};
  for (int i = n - window / 2; i <= n + window / 2; ++i) {
    const int clamped = std::clamp(i, 0, static_cast<int>(clip.size()) - 1);
    call.window.push_back({clip[static_cast<std::size_t>(clamped)].view(), clamped});
  }
  return call;
}

std::string restored(Restorer& restorer, const RestoreCall& call) {
  const FrameView& view = call.window.front().view;
  OwnedPicture out(view.format, view.width * restorer.info().scale, view.height * restorer.info().scale);
  restorer.restore(call, {out.mutable_view()});
  return bytes_of_picture(out);
}

TEST(RestorerCalls, AFrameIsTheSameInAnyOrderAndFromManyThreads) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv, 48, 32, 24);
  for (const int streams : {0, 3}) {
    Restorer restorer(std::make_shared<FrameMixer>(5), NetworkSpec{.window = 5},
                      {.tile_px = 20, .overlap_px = RestoreOptions::kExact, .streams = streams});
    std::vector<std::string> expected;
    for (int n = 0; n < 24; ++n) expected.push_back(restored(restorer, call_for(clip, n, 5)));
    EXPECT_NE(expected[3], expected[4]);

    std::vector<std::string> found(24);
    std::vector<int> order(24);
    for (int n = 0; n < 24; ++n) order[static_cast<std::size_t>(n)] = n;
    std::shuffle(order.begin(), order.end(), std::mt19937(4));
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < order.size(); i = next++) {
          found[static_cast<std::size_t>(order[i])] = restored(restorer, call_for(clip, order[i], 5));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(found == expected) << streams;
  }
}

TEST(RestorerCalls, ANetworkOfAllFramesGivesItsWindow) {
  const std::vector<OwnedPicture> clip = clip_of_noise(VideoFormat{}, 20, 12, 3);
  for (const int tile : {0, 8}) {
    Restorer restorer(std::make_shared<FrameReverser>(3), NetworkSpec{.window = 3},
                      {.tile_px = tile, .overlap_px = RestoreOptions::kExact});
    EXPECT_EQ(restorer.outputs(), 3);
    std::vector<OwnedPicture> outs;
    std::vector<MutableFrameView> views;
    for (int i = 0; i < 3; ++i) outs.emplace_back(VideoFormat{}, 20, 12);
    for (OwnedPicture& out : outs) views.push_back(out.mutable_view());
    restorer.restore(call_for(clip, 1, 3), views);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(bytes_of_picture(outs[i]), bytes_of_picture(clip[2 - i])) << i;
    EXPECT_ANY_THROW(restorer.restore(call_for(clip, 1, 3), {views[0]}));
  }
}

TEST(RestorerCalls, TheNoiseLevelIsANumberOrAPicture) {
  const std::vector<OwnedPicture> clip = clip_of_noise(VideoFormat{}, 20, 12, 1);
  const RestoreCall call = call_for(clip, 0, 1);
  const auto level_of = [](const std::string& picture) {
    return static_cast<int>(static_cast<unsigned char>(picture[0]));
  };
  Restorer own(std::make_shared<NoiseLevelShower>(), NetworkSpec{}, {});
  EXPECT_EQ(level_of(restored(own, call)), 7);
  Restorer number(std::make_shared<NoiseLevelShower>(), NetworkSpec{}, {.sigma = 25.0});
  EXPECT_EQ(level_of(restored(number, call)), 25);

  OwnedPicture map(VideoFormat{ColorFamily::gray}, 20, 12);
  const MutableFrameView view = map.mutable_view();
  for (int y = 0; y < 12; ++y) {
    for (int x = 0; x < 20; ++x) view.planes[0].data[y * view.planes[0].stride_bytes + x] = static_cast<std::byte>(x);
  }
  for (const int tile : {0, 8}) {
    Restorer any(std::make_shared<NoiseLevelShower>(), NetworkSpec{},
                 {.tile_px = tile, .overlap_px = 0, .sigma = 25.0});
    RestoreCall with_map = call;
    with_map.sigma = map.view();
    const std::string shown = restored(any, with_map);
    for (int x = 0; x < 20; ++x)
      EXPECT_EQ(static_cast<int>(static_cast<unsigned char>(shown[static_cast<std::size_t>(x)])), x);
    EXPECT_EQ(level_of(restored(any, call)), 25);
  }
  try {
    Restorer(std::make_shared<ThreeConvs>(), NetworkSpec{}, {.sigma = 25.0});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

TEST(RestorerCalls, AStopIsHeededBetweenTiles) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv, 48, 32, 1);
  for (const int tile_px : {20, 0}) {  // in tiles, and whole
    Restorer restorer(std::make_shared<FrameMixer>(1), NetworkSpec{.window = 1},
                      {.tile_px = tile_px, .overlap_px = RestoreOptions::kExact});
    const std::string expected = restored(restorer, call_for(clip, 0, 1));
    RestoreCall call = call_for(clip, 0, 1);
    int polls = 0;
    call.stop_requested = [&] { return ++polls < 0; };
    EXPECT_EQ(restored(restorer, call), expected);
    const int last = polls;
    EXPECT_GE(last, tile_px == 0 ? 1 : 4);

    polls = 0;
    call.stop_requested = [&] { return ++polls == last; };
    try {
      restored(restorer, call);
      ADD_FAILURE() << "a stop at the last tile was not heeded";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::interrupted);
    }
    EXPECT_EQ(restored(restorer, call_for(clip, 0, 1)), expected);  // it goes on as if nothing had been
  }
}

TEST(RestorerCalls, OptionsOutOfTheirRangesAreRefused) {
  const auto refused = [](const RestoreOptions& options) {
    try {
      Restorer(std::make_shared<ThreeConvs>(), NetworkSpec{}, options);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage;
    }
    return false;
  };
  EXPECT_TRUE(refused({.strength = 1.5}));
  EXPECT_TRUE(refused({.strength = -0.1}));
  EXPECT_TRUE(refused({.streams = 33}));
  EXPECT_TRUE(refused({.overlap_px = -3}));
  EXPECT_TRUE(refused({.tile_px = -1}));
  EXPECT_FALSE(refused({.strength = 0}));
}

TEST(RestorerCalls, OrderedDitherShowsBetweenTheCodes) {
  // A gray ramp of 16 bits that 8 bits cannot hold: nearest gives few codes, dither the mean.
  OwnedPicture ramp(VideoFormat{ColorFamily::gray, SampleType::integer, 16}, 64, 64);
  const MutableFrameView view = ramp.mutable_view();
  for (int y = 0; y < 64; ++y) {
    auto* row = reinterpret_cast<std::uint16_t*>(view.planes[0].data + y * view.planes[0].stride_bytes);
    std::fill(row, row + 64, static_cast<std::uint16_t>(100 * 256 + 64));
  }
  for (const bool dither : {false, true}) {
    Restorer restorer(std::make_shared<Enlarger>(1, 3), NetworkSpec{}, {.ordered_dither = dither});
    OwnedPicture out(VideoFormat{ColorFamily::gray}, 64, 64);
    restorer.restore({.window = {{ramp.view(), 0}}, .clip = "ramp"}, {out.mutable_view()});
    double mean = 0;
    for (const char code : bytes_of_picture(out)) mean += static_cast<unsigned char>(code) / 4096.0;
    EXPECT_NEAR(mean, dither ? 100.25 : 100, 0.01);
  }
}

TEST(RestorerCalls, SizesMayChangeBetweenCalls) {
  Restorer restorer(std::make_shared<Enlarger>(2, 3), NetworkSpec{}, {});
  for (const int width : {16, 24, 16}) {
    const std::vector<OwnedPicture> clip = clip_of_noise(VideoFormat{}, width, 10, 1);
    const std::string large = restored(restorer, call_for(clip, 0, 1));
    EXPECT_EQ(large.size(), static_cast<std::size_t>(width) * 2 * 20 * 3);
    EXPECT_EQ(large[2], bytes_of_picture(clip[0])[1]);
  }
}

}  // namespace
}  // namespace reelgrad
