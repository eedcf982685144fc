#include "reelgrad/data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

ClipSpan span(int script, std::int64_t begin, std::int64_t end, double weight = 1) {
  return {script, begin, end, weight, 100, 80, "clip " + std::to_string(script)};
}

SamplerConfig small_config() {
  SamplerConfig config;
  config.batch = 4;
  config.crop_px = 16;
  config.segment_frames = 8;
  config.pool_frames = 32;
  config.reuse = 2;
  return config;
}

std::vector<Sample> samples(const Sampler& sampler, std::int64_t first_step, std::int64_t last_step, int rank = 0) {
  std::vector<Sample> list;
  for (std::int64_t step = first_step; step < last_step; ++step) {
    for (int i = 0; i < sampler.config().batch; ++i) list.push_back(sampler.sample(step, i, rank));
  }
  return list;
}

// Pearson's statistic against a uniform distribution; its mean is cells - 1, its deviation sqrt(2 (cells - 1)).
double chi_square(const std::map<std::int64_t, int>& counts, std::size_t cells) {
  double total = 0;
  for (const auto& [cell, count] : counts) total += count;
  const double expected = total / static_cast<double>(cells);
  double sum = static_cast<double>(cells - counts.size()) * expected;
  for (const auto& [cell, count] : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

void expect_uniform(const std::map<std::int64_t, int>& counts, std::size_t cells) {
  EXPECT_LE(counts.size(), cells);
  const double freedom = static_cast<double>(cells) - 1;
  EXPECT_LT(chi_square(counts, cells), freedom + 5 * std::sqrt(2 * freedom));
}

TEST(Sampler, CutsASpanIntoSegmentsOfFullLength) {
  const Sampler sampler({span(0, 10, 39)}, small_config());  // 29 frames: 3 full segments and one moved back
  std::set<std::int64_t> begins;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sampler.segment(i).frames, 8);
    EXPECT_EQ(sampler.segment(i).index, i);
    begins.insert(sampler.segment(i).begin);
  }
  EXPECT_THAT(begins, testing::ElementsAre(10, 18, 26, 31));
  EXPECT_EQ(sampler.distinct_segments(0), 4);
}

TEST(Sampler, AShortSpanIsOneShorterSegment) {
  const Sampler sampler({span(0, 3, 8)}, small_config());
  EXPECT_EQ(sampler.segment(5), (Segment{5, 0, 3, 5}));
}

TEST(Sampler, SpansOfOneScriptShareItsTurns) {
  const Sampler sampler({span(0, 0, 16), span(0, 40, 48), span(1, 0, 24)}, small_config());
  std::map<int, int> turns;
  std::set<std::int64_t> begins;
  for (int i = 0; i < 6; ++i) {
    const Segment segment = sampler.segment(i);
    ++turns[segment.script];
    if (segment.script == 0) begins.insert(segment.begin);
  }
  EXPECT_EQ(turns[0], 3);
  EXPECT_THAT(begins, testing::ElementsAre(0, 8, 40));
}

TEST(Sampler, DrawsEverySegmentOnceAnEpochInANewOrder) {
  const Sampler sampler({span(0, 0, 64 * 8)}, small_config());
  std::vector<std::vector<std::int64_t>> epochs(5);
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    for (int i = 0; i < 64; ++i) {
      epochs[epoch].push_back(sampler.segment(static_cast<std::int64_t>(epoch) * 64 + i).begin);
    }
    std::vector<std::int64_t> sorted = epochs[epoch];
    std::sort(sorted.begin(), sorted.end());
    for (int i = 0; i < 64; ++i) EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i * 8);
    if (epoch > 0) {
      EXPECT_NE(epochs[epoch], epochs[epoch - 1]);
    }
  }
}

TEST(Sampler, EverySegmentIsOnceInAnEpochAlsoAcrossAResume) {
  // A resumed run asks a new instance from the middle of an epoch on.
  const std::vector<ClipSpan> spans{span(0, 0, 64 * 8)};
  const Sampler first(spans, small_config()), second(spans, small_config());
  std::map<std::int64_t, int> seen;
  for (int i = 0; i < 20; ++i) ++seen[first.segment(i).begin];
  for (int i = 20; i < 64; ++i) ++seen[second.segment(i).begin];
  EXPECT_EQ(seen.size(), 64U);
  EXPECT_THAT(seen, testing::Each(testing::Pair(testing::_, 1)));
}

TEST(Sampler, AResumedListEqualsTheUnbrokenOne) {
  const std::vector<ClipSpan> spans{span(0, 0, 100, 0.7), span(1, 20, 90, 2.1), span(2, 0, 33, 1)};
  const Sampler unbroken(spans, small_config());
  const std::vector<Sample> all = samples(unbroken, 0, 200);
  const Sampler resumed(spans, small_config());
  std::vector<Sample> tail = samples(resumed, 77, 200);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), all.begin() + 77 * 4));
}

TEST(Sampler, AnyOrderOfQuestionsGivesTheSameAnswers) {
  const std::vector<ClipSpan> spans{span(0, 0, 100, 3), span(1, 20, 90, 1)};
  const Sampler forward(spans, small_config()), backward(spans, small_config());
  std::vector<Segment> there, back;
  for (int i = 0; i < 500; ++i) there.push_back(forward.segment(i));
  for (int i = 499; i >= 0; --i) back.push_back(backward.segment(i));
  std::reverse(back.begin(), back.end());
  EXPECT_EQ(there, back);
}

TEST(Sampler, ThreadsMayAskAtOnce) {
  const Sampler sampler({span(0, 0, 100, 3), span(1, 20, 90, 1)}, small_config());
  const std::vector<Sample> expected = samples(sampler, 0, 100);
  std::array<std::vector<Sample>, 4> lists;
  std::vector<std::thread> threads;
  for (auto& list : lists) threads.emplace_back([&] { list = samples(sampler, 0, 100); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& list : lists) EXPECT_EQ(list, expected);
}

TEST(Sampler, WeightsAreSharesOfTheScheduleAtAnyPoint) {
  const Sampler sampler({span(0, 0, 800, 3), span(1, 0, 80, 1)}, small_config());
  std::array<int, 2> turns{};
  for (int i = 0; i < 4000; ++i) {
    ++turns[static_cast<std::size_t>(sampler.segment(i).script)];
    EXPECT_NEAR(turns[0], (i + 1) * 0.75, 1.0);
  }
  EXPECT_EQ(turns[0], 3000);
}

TEST(Sampler, KnownSchedule) {
  // Turn k of a script of weight w is at time (k + 1/2) / w: 1/6, 3/6, 5/6, … and 1/2, 3/2, …; ties to the first.
  const Sampler sampler({span(0, 0, 800, 3), span(1, 0, 80, 1)}, small_config());
  std::vector<int> scripts;
  for (int i = 0; i < 8; ++i) scripts.push_back(sampler.segment(i).script);
  EXPECT_THAT(scripts, testing::ElementsAre(0, 0, 1, 0, 0, 0, 1, 0));
}

TEST(Sampler, SamplesFollowTheWeights) {
  SamplerConfig config = small_config();
  config.pool_frames = 32 * 8;
  const Sampler sampler({span(0, 0, 4000, 3), span(1, 0, 400, 1)}, config);
  int of_first = 0;
  const std::vector<Sample> drawn = samples(sampler, 0, 4000);
  for (const Sample& sample : drawn) of_first += sampler.segment(sample.segment).script == 0;
  EXPECT_NEAR(static_cast<double>(of_first) / static_cast<double>(drawn.size()), 0.75, 0.015);  // 4 deviations
}

TEST(Sampler, FarStepsCostNoMoreThanNearOnes) {
  const Sampler sampler({span(0, 0, 100, 0.3), span(1, 20, 90, 1.7)}, small_config());
  const std::int64_t far = 1'000'000'000'000;
  std::map<int, int> turns;
  for (std::int64_t i = far; i < far + 2000; ++i) ++turns[sampler.segment(i).script];
  EXPECT_NEAR(turns[0], 300, 1);
}

TEST(Sampler, ResidentSegmentsMoveWithTheCropsThatWereCut) {
  const Sampler sampler({span(0, 0, 100)}, small_config());  // 8 frames x reuse 2 = 16 crops a segment, 4 a step
  EXPECT_EQ(sampler.resident_segments(), 4);
  EXPECT_EQ(sampler.first_resident(3), 0);
  EXPECT_EQ(sampler.first_resident(4), 1);
  EXPECT_EQ(sampler.first_resident(41), 10);
  SamplerConfig tiny = small_config();
  tiny.pool_frames = 8;
  EXPECT_EQ(Sampler({span(0, 0, 100)}, tiny).resident_segments(), 1);
}

TEST(Sampler, SamplesComeFromResidentSegmentsAndStayInside) {
  SamplerConfig config = small_config();
  config.window = 3;
  config.frame_step = 2;
  const Sampler sampler({span(0, 10, 39), span(1, 0, 6)}, config);
  for (std::int64_t step = 0; step < 300; ++step) {
    for (int i = 0; i < config.batch; ++i) {
      const Sample sample = sampler.sample(step, i);
      EXPECT_GE(sample.segment, sampler.first_resident(step));
      EXPECT_LT(sample.segment, sampler.first_resident(step) + sampler.resident_segments());
      const Segment segment = sampler.segment(sample.segment);
      EXPECT_GE(sample.frame, segment.begin);
      EXPECT_LE(sample.frame + 4, segment.begin + segment.frames - 1);
      EXPECT_GE(sample.x, 0);
      EXPECT_LE(sample.x, 100 - 16);
      EXPECT_GE(sample.y, 0);
      EXPECT_LE(sample.y, 80 - 16);
    }
  }
}

TEST(Sampler, PositionsFramesAndOrientationsAreUniform) {
  SamplerConfig config = small_config();
  config.pool_frames = 80;
  const Sampler sampler({span(0, 0, 80)}, config);
  std::map<std::int64_t, int> frames, x, y, orientations;
  for (const Sample& sample : samples(sampler, 0, 10'000)) {
    ++frames[sample.frame];
    ++x[sample.x];
    ++y[sample.y];
    ++orientations[sample.orientation.transpose * 4 + sample.orientation.flip_x * 2 + sample.orientation.flip_y];
  }
  expect_uniform(frames, 80);
  expect_uniform(x, 85);
  expect_uniform(y, 65);
  expect_uniform(orientations, 8);
}

TEST(Sampler, WithoutAugmentOnlyTheOrientationChanges) {
  SamplerConfig plain = small_config();
  plain.augment = false;
  const Sampler with({span(0, 0, 80)}, small_config()), without({span(0, 0, 80)}, plain);
  for (std::int64_t step = 0; step < 100; ++step) {
    Sample expected = with.sample(step, 1);
    expected.orientation = {};
    EXPECT_EQ(without.sample(step, 1), expected);
  }
}

TEST(Sampler, SeedsAndRanksDrawDifferently) {
  SamplerConfig other = small_config();
  other.seed = 2;
  const Sampler sampler({span(0, 0, 800)}, small_config()), seeded({span(0, 0, 800)}, other);
  const std::vector<Sample> base = samples(sampler, 0, 50);
  const auto equal = [&](const std::vector<Sample>& list) {
    int count = 0;
    for (std::size_t i = 0; i < base.size(); ++i) count += list[i] == base[i];
    return count;
  };
  EXPECT_LT(equal(samples(seeded, 0, 50)), 2);
  EXPECT_LT(equal(samples(sampler, 0, 50, 1)), 2);
}

TEST(Sampler, MostSegmentsHoldsForEveryStretchOfTheSchedule) {
  const std::array<double, 3> weights{0.31, 1.7, 1.0};
  for (std::size_t scripts = 1; scripts <= weights.size(); ++scripts) {
    std::vector<ClipSpan> spans;
    for (std::size_t s = 0; s < scripts; ++s) spans.push_back(span(static_cast<int>(s), 0, 8 * 40, weights[s]));
    const Sampler sampler(spans, small_config());
    for (int length : {1, 2, 5, 17}) {
      for (std::int64_t first = 0; first < 400; ++first) {
        std::vector<std::set<std::int64_t>> begins(scripts);
        for (int i = 0; i < length; ++i) {
          const Segment segment = sampler.segment(first + i);
          begins[static_cast<std::size_t>(segment.script)].insert(segment.begin);
        }
        for (std::size_t s = 0; s < scripts; ++s) {
          ASSERT_LE(static_cast<int>(begins[s].size()), sampler.most_segments(static_cast<int>(s), length));
        }
      }
    }
  }
}

std::string refusal(const ClipSpan& bad, const SamplerConfig& config) {
  try {
    Sampler({bad}, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(Sampler, RefusesWhatCannotBeSampledNamingBothValues) {
  SamplerConfig config = small_config();
  config.window = 3;
  config.frame_step = 2;
  EXPECT_EQ(refusal(span(0, 0, 4), config),
            "clip 0: 4 frames can be trained on, but data.window = 3 with data.frame_step = 2 needs at least 5");
  config.targets = 2;
  EXPECT_EQ(refusal(span(0, 0, 6), config),
            "clip 0: 6 frames can be trained on, but data.window = 3 with data.frame_step = 2 of 2 neighbours a sample "
            "needs at least 7");
  config.targets = 1;
  config.crop_px = 96;
  EXPECT_EQ(refusal(span(0, 0, 40), config), "clip 0: the input is 100x80, but data.crop_px = 96: allowed are 1 to 80");
  config.segment_frames = 4;
  EXPECT_THAT(refusal(span(0, 0, 40), config), testing::StartsWith("data.segment_frames: 4 is less than the 5 frames"));
}

}  // namespace
}  // namespace reelgrad
