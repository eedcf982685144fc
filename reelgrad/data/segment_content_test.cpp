#include "reelgrad/data/segment_content.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <random>

#include "reelgrad/base/error.h"
#include "reelgrad/data/sampler.h"

namespace reelgrad {
namespace {

using testing::ElementsAre;

using Scenes = std::vector<std::vector<int>>;

PictureSummary shade(int step) {
  PictureSummary picture;
  for (int i = 0; i < kSummaryRows * kSummaryColumns; ++i) {
    picture.cell[i] = static_cast<std::uint16_t>(20000 + 15000 * (i / step % 2));
  }
  return picture;
}

// Frames of two scenes that cannot be taken for one another: 'a' and 'b'; a capital letter repeats the one before.
std::vector<FrameContent> frames_of(const std::string& letters) {
  std::vector<FrameContent> frames;
  for (const char letter : letters) {
    const bool repeats = letter < 'a';
    const bool second = letter == 'b' || letter == 'B';
    frames.push_back({.repeats = repeats, .summary = shade(second ? 7 : kSummaryColumns * 4)});
  }
  return frames;
}

Scenes scenes_of(const std::vector<FrameContent>& frames, SceneCuts cuts) {
  return segment_content(frames, cuts).scenes;
}

TEST(SegmentContent, OneSceneOfDifferentFrames) {
  for (const SceneCuts cuts : {SceneCuts::automatic, SceneCuts::props, SceneCuts::off}) {
    EXPECT_EQ(segment_content(frames_of("aaaa"), cuts), plain_content(4));
  }
  EXPECT_THAT(plain_content(3).scenes, ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(SegmentContent, FramesThatRepeatAreLeftOut) {
  EXPECT_EQ(scenes_of(frames_of("aAaAAa"), SceneCuts::off), (Scenes{{0, 2, 5}}));
  EXPECT_EQ(scenes_of(frames_of("aAAA"), SceneCuts::automatic), (Scenes{{0}}));
  EXPECT_EQ(scenes_of(frames_of("AAaA"), SceneCuts::automatic), (Scenes{{0, 2}})) << "the first frame always counts";
}

TEST(SegmentContent, CutsAreDetectedOnlyWhereTheyMayBe) {
  const std::vector<FrameContent> frames = frames_of("aaaaBbbb");  // a repeat is no cut, whatever it shows
  EXPECT_EQ(scenes_of(frames_of("aaaabbbb"), SceneCuts::automatic), (Scenes{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(scenes_of(frames, SceneCuts::automatic), (Scenes{{0, 1, 2, 3}, {5, 6, 7}}));
  EXPECT_EQ(scenes_of(frames_of("aaaabbbb"), SceneCuts::props), (Scenes{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(scenes_of(frames_of("aaaabbbb"), SceneCuts::off), (Scenes{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

TEST(SegmentContent, PropertiesOfEitherSideOfACut) {
  std::vector<FrameContent> frames = frames_of("aaaaaa");
  frames[2].scene.begins = true;
  EXPECT_EQ(scenes_of(frames, SceneCuts::props), (Scenes{{0, 1}, {2, 3, 4, 5}}));
  frames[3].scene.ends = true;
  EXPECT_EQ(scenes_of(frames, SceneCuts::props), (Scenes{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(scenes_of(frames, SceneCuts::automatic), (Scenes{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(scenes_of(frames, SceneCuts::off), (Scenes{{0, 1, 2, 3, 4, 5}}));
  frames[0].scene.begins = frames[5].scene.ends = true;  // at the segment's ends: nothing to cut
  EXPECT_EQ(scenes_of(frames, SceneCuts::props).size(), 3U);
}

TEST(SegmentContent, APropertyThatSaysNoKeepsTheDetectorOff) {
  std::vector<FrameContent> frames = frames_of("aaabbb");
  EXPECT_EQ(scenes_of(frames, SceneCuts::automatic).size(), 2U);
  frames[5].scene.begins = false;
  EXPECT_EQ(scenes_of(frames, SceneCuts::automatic).size(), 1U);
}

TEST(SegmentContent, ACutAtAFrameThatRepeatsIsAtTheNextThatDoesNot) {
  std::vector<FrameContent> frames = frames_of("aaAAaa");
  frames[2].scene.begins = true;
  EXPECT_EQ(scenes_of(frames, SceneCuts::props), (Scenes{{0, 1}, {4, 5}}));
  frames = frames_of("aaaAAA");
  frames[3].scene.begins = true;
  EXPECT_EQ(scenes_of(frames, SceneCuts::props), (Scenes{{0, 1, 2}})) << "a scene of repeats alone is none";
}

TEST(SegmentContent, PropertiesOfBothSidesAreJoined) {
  const SceneProps joined = either_of({.begins = false}, {.begins = true, .ends = false});
  EXPECT_EQ(joined.begins, true);
  EXPECT_EQ(joined.ends, false);
  EXPECT_FALSE(either_of(SceneProps{}, {}).begins.has_value());
}

TEST(SegmentContent, NamesOfTheConfiguration) {
  EXPECT_EQ(parse_scene_cuts("auto"), SceneCuts::automatic);
  EXPECT_EQ(parse_scene_cuts("props"), SceneCuts::props);
  EXPECT_EQ(parse_scene_cuts("off"), SceneCuts::off);
  EXPECT_THROW(parse_scene_cuts("on"), Error);
}

TEST(PlaceWindow, WithoutCutsAndRepeatsItIsAPlainDraw) {
  std::mt19937 random(1);
  for (const auto& [frames, window, step] : {std::tuple{16, 1, 1}, {16, 3, 2}, {16, 5, 1}, {7, 7, 1}, {1, 1, 1}}) {
    for (int i = 0; i < 1000; ++i) {
      const auto draw = static_cast<std::uint32_t>(random());
      const std::vector<int> offsets = place_window(draw, plain_content(frames), window, step);
      const std::uint64_t starts = static_cast<std::uint64_t>(frames - (window - 1) * step);
      ASSERT_EQ(offsets.size(), static_cast<std::size_t>(window));
      for (int t = 0; t < window; ++t) ASSERT_EQ(offsets[t], static_cast<int>((draw * starts) >> 32) + t * step);
    }
  }
}

TEST(PlaceWindow, WindowsRunOverTheFramesThatAreLeft) {
  const SegmentContent content{{{0, 2, 3, 7, 8}}};
  EXPECT_THAT(place_window(0, content, 3, 1), ElementsAre(0, 2, 3));
  EXPECT_THAT(place_window(0xffff'ffff, content, 3, 1), ElementsAre(3, 7, 8));
  EXPECT_THAT(place_window(0x8000'0000, content, 3, 2), ElementsAre(0, 3, 8));
}

TEST(PlaceWindow, AShortSceneRepeatsItsEnds) {
  const SegmentContent two{{{4, 5}}}, one{{{0}}};
  EXPECT_THAT(place_window(0, two, 5, 1), ElementsAre(4, 4, 4, 5, 5));
  EXPECT_THAT(place_window(0xffff'ffff, two, 5, 1), ElementsAre(4, 4, 5, 5, 5));
  EXPECT_THAT(place_window(0x1234'5678, one, 3, 4), ElementsAre(0, 0, 0));
  EXPECT_THAT(place_window(0x1234'5678, one, 1, 1), ElementsAre(0));
}

SegmentContent random_content(std::mt19937& random) {
  SegmentContent content;
  int frame = static_cast<int>(random() % 2);
  for (int scenes = 1 + static_cast<int>(random() % 4); scenes > 0; --scenes) {
    std::vector<int>& scene = content.scenes.emplace_back();
    for (int frames = 1 + static_cast<int>(random() % 9); frames > 0; --frames) {
      scene.push_back(frame);
      frame += 1 + static_cast<int>(random() % 3);
    }
  }
  return content;
}

TEST(PlaceWindow, NeverCrossesACutAndKeepsTheOrder) {
  std::mt19937 random(2);
  for (int i = 0; i < 20'000; ++i) {
    const SegmentContent content = random_content(random);
    const int window = 1 + 2 * static_cast<int>(random() % 4), step = 1 + static_cast<int>(random() % 3);
    const auto draw = static_cast<std::uint32_t>(random());
    const std::vector<int> offsets = place_window(draw, content, window, step);
    ASSERT_EQ(offsets, place_window(draw, content, window, step));
    ASSERT_TRUE(std::ranges::is_sorted(offsets));
    const auto holds_all = [&](const std::vector<int>& scene) {
      return std::ranges::all_of(offsets, [&](int frame) { return std::ranges::find(scene, frame) != scene.end(); });
    };
    ASSERT_EQ(std::ranges::count_if(content.scenes, holds_all), 1);
    // In a scene that is long enough nothing is repeated, and neighbours are `step` frames of it apart.
    const std::vector<int>& scene = *std::ranges::find_if(content.scenes, holds_all);
    if (static_cast<int>(scene.size()) <= (window - 1) * step) continue;
    const auto place = [&](int frame) { return std::ranges::find(scene, frame) - scene.begin(); };
    for (std::size_t t = 1; t < offsets.size(); ++t) ASSERT_EQ(place(offsets[t]) - place(offsets[t - 1]), step);
  }
}

TEST(PlaceWindow, IsUniformOverTheWindowsThatThereAre) {
  // Windows of 5: 4 in the first scene, 3 around each frame of the second, 1 in the third.
  const SegmentContent content{{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10}, {11, 13, 14, 15, 16}}};
  std::map<std::vector<int>, int> counts;
  std::mt19937 random(3);
  const int draws = 80'000;
  for (int i = 0; i < draws; ++i) ++counts[place_window(static_cast<std::uint32_t>(random()), content, 5, 1)];
  ASSERT_EQ(counts.size(), 8U);
  const double expected = draws / 8.0;
  for (const auto& [window, count] : counts) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected));
}

TEST(PlaceWindow, TurnsASamplersDrawIntoItsFrame) {
  SamplerConfig config;
  config.window = 3;
  config.frame_step = 2;
  const Sampler sampler({{0, 10, 239, 1, 100, 80, "clip"}}, config);
  for (std::int64_t step = 0; step < 200; ++step) {
    const Sample sample = sampler.sample(step, 3);
    const Segment segment = sampler.segment(sample.segment);
    const std::vector<int> offsets = place_window(sample.draw, plain_content(segment.frames), 3, 2);
    EXPECT_EQ(segment.begin + offsets[0], sample.frame);
  }
}

}  // namespace
}  // namespace reelgrad
