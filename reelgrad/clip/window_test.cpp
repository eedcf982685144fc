#include "reelgrad/clip/window.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace reelgrad {
namespace {

using ::testing::ElementsAre;

const BeginsScene kOneScene = [](std::int64_t) { return false; };

BeginsScene cuts_at(std::set<std::int64_t> cuts) {
  return [cuts = std::move(cuts)](std::int64_t frame) { return cuts.contains(frame); };
}

TEST(Window, TheEndsOfAClip) {
  EXPECT_THAT(window_frames(0, 10, 5, WindowEnds::repeat, kOneScene), ElementsAre(0, 0, 0, 1, 2));
  EXPECT_THAT(window_frames(9, 10, 5, WindowEnds::repeat, kOneScene), ElementsAre(7, 8, 9, 9, 9));
  EXPECT_THAT(window_frames(0, 10, 5, WindowEnds::mirror, kOneScene), ElementsAre(2, 1, 0, 1, 2));
  EXPECT_THAT(window_frames(8, 10, 5, WindowEnds::mirror, kOneScene), ElementsAre(6, 7, 8, 9, 8));
  EXPECT_THAT(window_frames(1, 2, 7, WindowEnds::mirror, kOneScene), ElementsAre(0, 1, 0, 1, 0, 1, 0));
  EXPECT_THAT(window_frames(0, 1, 5, WindowEnds::mirror, kOneScene), ElementsAre(0, 0, 0, 0, 0));
}

TEST(Window, ACutIsAnEnd) {
  EXPECT_THAT(window_frames(4, 10, 5, WindowEnds::repeat, cuts_at({5})), ElementsAre(2, 3, 4, 4, 4));
  EXPECT_THAT(window_frames(5, 10, 5, WindowEnds::repeat, cuts_at({5})), ElementsAre(5, 5, 5, 6, 7));
  EXPECT_THAT(window_frames(6, 10, 5, WindowEnds::mirror, cuts_at({5})), ElementsAre(6, 5, 6, 7, 8));
  EXPECT_THAT(window_frames(5, 10, 5, WindowEnds::mirror, cuts_at({5, 6})), ElementsAre(5, 5, 5, 5, 5));
}

TEST(Window, SegmentsBeginAtMultiplesAndAtCuts) {
  const WindowSegment whole = segment_of(5, 10, 4, WindowEnds::repeat, kOneScene);
  EXPECT_EQ(whole.own.begin, 4);
  EXPECT_THAT(whole.frames, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(segment_of(9, 10, 4, WindowEnds::repeat, kOneScene).frames, ElementsAre(8, 9, 9, 9));
  EXPECT_THAT(segment_of(8, 10, 4, WindowEnds::mirror, kOneScene).frames, ElementsAre(8, 9, 8, 9));
  EXPECT_THAT(segment_of(5, 10, 4, WindowEnds::repeat, cuts_at({6})).frames, ElementsAre(4, 5, 5, 5));
  EXPECT_THAT(segment_of(6, 10, 4, WindowEnds::repeat, cuts_at({6})).frames, ElementsAre(6, 7, 7, 7));
}

// --- Every clip of up to seven frames, every set of cuts in it

std::vector<int> scenes_of(int frames, unsigned cuts) {
  std::vector<int> scenes{0};
  for (int i = 1; i < frames; ++i) scenes.push_back(scenes.back() + static_cast<int>(cuts >> i & 1U));
  return scenes;
}

// By walking: a step that would leave the scene is not made, or turns round.
std::int64_t walk(std::int64_t from, int steps, WindowEnds ends, const std::vector<int>& scenes) {
  const auto inside = [&](std::int64_t frame) {
    return frame >= 0 && frame < std::ssize(scenes) && scenes[frame] == scenes[from];
  };
  std::int64_t at = from;
  int direction = steps < 0 ? -1 : 1;
  for (int i = 0; i < std::abs(steps); ++i) {
    if (!inside(at + direction) && ends == WindowEnds::mirror) direction = -direction;
    if (inside(at + direction)) at += direction;
  }
  return at;
}

template <class Check>
void for_every_clip(Check&& check) {
  for (int frames = 1; frames <= 7; ++frames) {
    for (unsigned cuts = 0; cuts < 1U << frames; cuts += 2) {
      const BeginsScene begins = [&](std::int64_t frame) {
        EXPECT_TRUE(frame > 0 && frame < frames) << frame;
        return (cuts >> frame & 1U) != 0;
      };
      for (const WindowEnds ends : {WindowEnds::repeat, WindowEnds::mirror}) {
        for (int n = 0; n < frames; ++n) check(n, scenes_of(frames, cuts), ends, begins);
      }
    }
  }
}

TEST(Window, EveryWindowIsAWalkThroughItsScene) {
  for_every_clip([](int n, const std::vector<int>& scenes, WindowEnds ends, const BeginsScene& begins) {
    for (const int window : {1, 3, 5, 7, 9}) {
      const FrameRange reach = window_reach(n, std::ssize(scenes), window);
      const auto within = [&](std::int64_t frame) {
        EXPECT_TRUE(frame > reach.begin && frame < reach.end);
        return begins(frame);
      };
      const std::vector<std::int64_t> chosen = window_frames(n, std::ssize(scenes), window, ends, within);
      ASSERT_EQ(std::ssize(chosen), window);
      for (int i = 0; i < window; ++i) {
        ASSERT_EQ(chosen[i], walk(n, i - window / 2, ends, scenes));
        ASSERT_TRUE(chosen[i] >= reach.begin && chosen[i] < reach.end);
      }
    }
  });
}

TEST(Window, EverySegmentIsTheSameForAllItsFrames) {
  for_every_clip([](int n, const std::vector<int>& scenes, WindowEnds ends, const BeginsScene& begins) {
    for (const int window : {1, 2, 3, 4, 8}) {
      const std::int64_t frames = std::ssize(scenes);
      const WindowSegment segment = segment_of(n, frames, window, ends, begins);
      ASSERT_TRUE(segment.own.begin <= n && n < segment.own.end);
      ASSERT_EQ(std::ssize(segment.frames), window);
      for (std::int64_t i = 0; i < window; ++i) {
        const std::int64_t frame = segment.frames[static_cast<std::size_t>(i)];
        if (i < segment.own.size()) {
          ASSERT_EQ(frame, segment.own.begin + i);
        }
        ASSERT_TRUE(frame >= segment.own.begin && frame < segment.own.end);
        ASSERT_EQ(scenes[frame], scenes[n]);
      }
      for (std::int64_t other = segment.own.begin; other < segment.own.end; ++other) {
        ASSERT_EQ(segment_of(other, frames, window, ends, begins).frames, segment.frames);
      }
    }
  });
}

}  // namespace
}  // namespace reelgrad
