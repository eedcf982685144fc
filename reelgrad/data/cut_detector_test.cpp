#include "reelgrad/data/cut_detector.h"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

constexpr VideoFormat kGray8{ColorFamily::gray, SampleType::integer, 8, 0, 0};
constexpr int kWidth = 160, kHeight = 90, kFrameBytes = kWidth * kHeight;

struct SplicedClip {
  std::string kind;
  std::vector<PictureSummary> pictures;
  std::vector<bool> repeats;
  std::set<int> cuts;
};

// Made once by testdata/spliced_clips.py.
class SplicedClips : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const test::TemporaryFolder folder;
    const std::string script = REELGRAD_SOURCE_DIR "/reelgrad/data/testdata/spliced_clips.py";
    const ProcessResult run =
        run_process({REELGRAD_TEST_PYTHON, script, folder.path().string(), "20", "4"}, std::chrono::minutes(2));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    std::ifstream index(folder / "clips.txt"), frames(folder / "clips.bin", std::ios::binary);
    for (std::string line; std::getline(index, line);) clips_.push_back(read_clip(line, frames));
  }
  static void TearDownTestSuite() { clips_.clear(); }

  static SplicedClip read_clip(const std::string& line, std::istream& frames) {
    std::istringstream words(line);
    SplicedClip clip;
    int count = 0;
    words >> clip.kind >> count;
    for (int cut; words >> cut;) clip.cuts.insert(cut);
    std::vector<char> last(kFrameBytes), frame(kFrameBytes);
    for (int i = 0; i < count; ++i, frame.swap(last)) {
      frames.read(frame.data(), kFrameBytes);
      const PictureRef picture{{reinterpret_cast<const std::byte*>(frame.data())}, {kWidth}, kWidth, kHeight};
      clip.pictures.push_back(cpu::summarize(kGray8, picture));
      clip.repeats.push_back(i > 0 && frame == last);
    }
    EXPECT_TRUE(frames) << line;
    return clip;
  }

  inline static std::vector<SplicedClip> clips_;
};

struct Score {
  int found = 0, missed = 0, false_alarms = 0;

  void operator+=(const Score& other) {
    found += other.found;
    missed += other.missed;
    false_alarms += other.false_alarms;
  }
  double recall() const { return static_cast<double>(found) / std::max(1, found + missed); }
  double precision() const { return static_cast<double>(found) / std::max(1, found + false_alarms); }
};

std::ostream& operator<<(std::ostream& out, const Score& score) {
  return out << score.found << " found, " << score.missed << " missed, " << score.false_alarms << " false: recall "
             << score.recall() << ", precision " << score.precision();
}

// Frames [begin, end) of the clip as a segment: a cut between two segments needs no finding.
Score score_of(const SplicedClip& clip, int begin, int end, bool skip_duplicates) {
  std::vector<const PictureSummary*> pictures;
  std::vector<int> frames;
  for (int i = begin; i < end; ++i) {
    if (skip_duplicates && i > begin && clip.repeats[static_cast<std::size_t>(i)]) continue;
    pictures.push_back(&clip.pictures[static_cast<std::size_t>(i)]);
    frames.push_back(i);
  }
  const std::vector<bool> cuts = detect_cuts(pictures);
  Score score;
  for (std::size_t k = 1; k < cuts.size(); ++k) {
    const bool is_cut = clip.cuts.contains(frames[k]);
    score.found += cuts[k] && is_cut;
    score.missed += !cuts[k] && is_cut;
    score.false_alarms += cuts[k] && !is_cut;
  }
  return score;
}

// Over segments of `length` that begin anywhere.
Score score_of(const SplicedClip& clip, int length, bool skip_duplicates) {
  const int frames = static_cast<int>(clip.pictures.size());
  Score score;
  for (int phase = 0; phase < length; phase += (length + 2) / 3)
    for (int begin = phase; begin < frames; begin += length)
      score += score_of(clip, begin, std::min(begin + length, frames), skip_duplicates);
  return score;
}

struct Scores {
  std::map<std::string, Score> by_kind;
  Score all;  // but "quick"
};

Scores scores_of(const std::vector<SplicedClip>& clips, int length, bool skip_duplicates) {
  Scores scores;
  for (const SplicedClip& clip : clips) {
    const Score score = score_of(clip, length, skip_duplicates);
    scores.by_kind[clip.kind] += score;
    if (clip.kind != "quick") scores.all += score;
  }
  return scores;
}

std::string table_of(const Scores& scores) {
  std::ostringstream out;
  for (const auto& [kind, score] : scores.by_kind) out << kind << ": " << score << '\n';
  out << "all: " << scores.all << '\n';
  return out.str();
}

// The numbers that issue 4 asks for, with flashes, fades, dissolves, pans, shaking, noise and frames held for two.
TEST_F(SplicedClips, CutsAreFoundAndFewThatAreNone) {
  for (const auto& [length, skip_duplicates] : {std::pair{12, true}, {16, true}, {16, false}, {64, true}}) {
    const Scores scores = scores_of(clips_, length, skip_duplicates);
    const std::string table = table_of(scores);
    SCOPED_TRACE("segments of " + std::to_string(length) + '\n' + table);
    EXPECT_GE(scores.all.found + scores.all.missed, 200);
    EXPECT_GE(scores.all.recall(), 0.95);
    EXPECT_GE(scores.all.precision(), 0.9);
    const Score& real = scores.by_kind.at("real");
    EXPECT_EQ(real.missed + real.false_alarms, 0) << real;
    // Of scenes of 3 to 7 frames, where neighbours say little of what is usual.
    EXPECT_GE(scores.by_kind.at("quick").recall(), 0.85);
    EXPECT_GE(scores.by_kind.at("quick").precision(), 0.95);
    RecordProperty("segments of " + std::to_string(length) + (skip_duplicates ? "" : " with duplicates"), table);
  }
}

PictureSummary picture_of(auto&& value) {
  PictureSummary picture;
  for (int y = 0; y < kSummaryRows; ++y)
    for (int x = 0; x < kSummaryColumns; ++x)
      picture.cell[y * kSummaryColumns + x] = static_cast<std::uint16_t>(value(x, y));
  return picture;
}

std::vector<bool> cuts_of(const std::vector<PictureSummary>& pictures) {
  std::vector<const PictureSummary*> list;
  for (const PictureSummary& picture : pictures) list.push_back(&picture);
  return detect_cuts(list);
}

const PictureSummary kWaves = picture_of([](int x, int y) { return 30000 + 12000 * ((x / 5 + y / 3) % 2); });
const PictureSummary kRamp = picture_of([](int x, int y) { return 2000 + 700 * x + 200 * y; });
const PictureSummary kBlack = picture_of([](int, int) { return 4096; });
const PictureSummary kWhite = picture_of([](int, int) { return 60160; });
const PictureSummary kDimWaves = picture_of([](int x, int y) { return 20000 + 6000 * ((x / 5 + y / 3) % 2); });

using testing::ElementsAre;

TEST(CutDetector, SegmentsTooShortToSayAnything) {
  EXPECT_THAT(cuts_of({}), testing::IsEmpty());
  EXPECT_THAT(cuts_of({kRamp}), ElementsAre(false));
  EXPECT_THAT(cuts_of({kRamp, kRamp}), ElementsAre(false, false));
  EXPECT_THAT(cuts_of({kRamp, kWaves}), ElementsAre(false, true));
}

TEST(CutDetector, TheFirstPictureOfAnotherSceneIsACut) {
  EXPECT_THAT(cuts_of({kRamp, kRamp, kWaves, kWaves, kWaves, kBlack, kBlack}),
              ElementsAre(false, false, true, false, false, true, false));
}

TEST(CutDetector, AFlashIsNone) {
  EXPECT_THAT(cuts_of({kRamp, kWhite, kRamp, kRamp}), testing::Each(false));
  EXPECT_THAT(cuts_of({kRamp, kRamp, kWhite, kBlack, kRamp, kRamp}), testing::Each(false));
  EXPECT_THAT(cuts_of({kRamp, kRamp, kWhite, kWaves, kWaves}), testing::Contains(true));
}

TEST(CutDetector, LightThatChangesIsNone) {
  EXPECT_THAT(cuts_of({kWaves, kWaves, kDimWaves, kDimWaves, kDimWaves}), testing::Each(false));
}

}  // namespace
}  // namespace reelgrad
