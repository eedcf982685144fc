// Mistakes that people really make with their clips (the numbers are those of the project's list of field cases).
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/data/testing.h"

namespace reelgrad {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class FieldCases : public testing::Test {
 protected:
  FieldCases() {
    config_.data.batch = 8;
    config_.data.crop_px = 16;
    config_.data.segment_frames = 6;
    config_.data.pool_frames = 6;
    config_.model.scale = 1;
    log::set_sink([this](log::Level level, std::string_view message) {
      if (level == log::Level::warning) warnings_.emplace_back(message);
    });
  }
  ~FieldCases() override { log::set_sink({}); }

  // Both outputs: noise of 6 frames, which `lines` may change.
  void use_clip(const std::string& name, const std::string& format, int width, int height, const std::string& lines) {
    config_.data.script = {{.path = folder_.write(name,
                                                  "import numpy as np\nimport vapoursynth as vs\ncore = vs.core\n"
                                                  "clip = core.std.BlankClip(width=" +
                                                      std::to_string(width) + ", height=" + std::to_string(height) +
                                                      ", format=vs." + format + ", length=6)\n" + R"(
def noise(n, f):
    f = f.copy()
    random = np.random.default_rng(n)
    for p in range(f.format.num_planes):
        plane = np.asarray(f[p])
        plane[:] = random.integers(16, 236, plane.shape)
    return f
clip = core.std.ModifyFrame(clip, clip, noise)
small = clip
)" + lines + "\nclip.set_output(0)\nsmall.set_output(1)\n")}};
  }

  // One step's samples, as the trainer gets them.
  torch::Tensor trained_on() {
    TrainingLoader loader(testing_data::open_clips(config_), config_, torch::kCPU, 0);
    const Batch batch = loader.next(0, 0, config_.data.batch);
    EXPECT_TRUE(torch::equal(batch.input, batch.target));
    return batch.input;
  }

  std::string failure() {
    try {
      TrainingLoader loader(testing_data::open_clips(config_), config_, torch::kCPU, 0);
      for (int step = 0; step < 10; ++step) loader.next(step, 0, config_.data.batch);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryFolder folder_{"é あ 🎬"};
  Config config_;
  std::vector<std::string> warnings_;
};

TEST_F(FieldCases, E1AnUnspecifiedMatrixIsGuessedWithOneWarningThatNamesTheRemedy) {
  use_clip("e1a.vpy", "YUV420P8", 64, 48, "clip = small = clip.std.SetFrameProps(_Matrix=2)");
  const torch::Tensor guessed = trained_on();
  EXPECT_THAT(warnings_,
              ElementsAre(AllOf(HasSubstr("e1a.vpy"), HasSubstr("frame "), HasSubstr("`_Matrix` = 2 (unspecified)"),
                                HasSubstr("BT.601"), HasSubstr("data.matrix_in = \"170m\""))));
  use_clip("e1b.vpy", "YUV420P8", 64, 48, "clip = small = clip.std.SetFrameProps(_Matrix=6)");
  EXPECT_TRUE(torch::equal(trained_on(), guessed));
  EXPECT_EQ(warnings_.size(), 1U);
}

TEST_F(FieldCases, E1AMatrixThatCannotBeConvertedIsRefusedWithTheKeyThatFixesIt) {
  use_clip("e1c.vpy", "YUV420P8", 64, 48, "clip = small = clip.std.SetFrameProps(_Matrix=8)");
  EXPECT_THAT(failure(), AllOf(HasSubstr("e1c.vpy"), HasSubstr("frame "), HasSubstr("`_Matrix` = 8"),
                               HasSubstr("data.matrix_in")));
}

TEST_F(FieldCases, E1OverridesWinOverEveryProperty) {
  struct Case {
    const char *right, *wrong;
    ColorOverrides overrides;
  };
  const Case cases[] = {{"_Matrix=1", "_Matrix=6", {.matrix_in = "709"}},
                        {"_Matrix=1", "_Matrix=2", {.matrix_in = "1"}},
                        {"_Matrix=9", "_Matrix=1", {.matrix_in = "2020ncl"}},
                        {"_Matrix=1, _Range=1", "_Matrix=1, _Range=0", {.range_in = "full"}},
                        {"_Matrix=1, _Range=0", "_Matrix=1, _Range=1", {.range_in = "limited"}},
                        {"_Matrix=1, _ChromaLocation=1", "_Matrix=1, _ChromaLocation=2", {.chromaloc_in = "center"}},
                        {"_Matrix=6, _Range=1, _ChromaLocation=0",
                         "_Matrix=9, _Range=0, _ChromaLocation=5",
                         {.matrix_in = "601", .range_in = "full", .chromaloc_in = "left"}}};
  int number = 0;
  for (const Case& c : cases) {
    const std::string name = "e1-" + std::to_string(++number) + ".vpy";
    const auto tagged = [&](const char* props, const ColorOverrides& overrides) {
      use_clip(name, "YUV420P8", 64, 48, std::string("clip = small = clip.std.SetFrameProps(") + props + ")");
      config_.data.overrides = overrides;
      return trained_on();
    };
    const torch::Tensor right = tagged(c.right, {});
    EXPECT_FALSE(torch::equal(tagged(c.wrong, {}), right)) << c.wrong;
    EXPECT_TRUE(torch::equal(tagged(c.wrong, c.overrides), right)) << c.wrong;
  }
}

const std::string kFrame3Flagged =
    "clip = clip[:3] + clip[3].std.SetFrameProps(_FieldBased=2) + clip[4:]\n"
    "clip = clip.std.SetFrameProps(_Matrix=1)\n";

TEST_F(FieldCases, E5AFieldFlagThatTheResizeRefusesIsNamedWithTheRemedy) {
  use_clip("e5a.vpy", "YUV420P8", 808, 466,
           kFrame3Flagged + "small = clip.resize.Bicubic(404, 232).resize.Bicubic(808, 466)");
  EXPECT_THAT(failure(), AllOf(HasSubstr("e5a.vpy, output 1: frame 3: "), HasSubstr("flagged interlaced"),
                               HasSubstr("`_FieldBased` = 1 or 2"), HasSubstr("SetFieldBased(0)")));
}

TEST_F(FieldCases, E5AFrameThatIsResizedFieldByFieldIsNeverTrainedOnSilently) {
  for (const char* flag : {"1", "2"}) {
    warnings_.clear();
    const std::string name = std::string("e5b") + flag + ".vpy";
    use_clip(name, "YUV420P8", 64, 48,
             kFrame3Flagged + "clip = clip[:3] + clip[3].std.SetFrameProps(_FieldBased=" + flag +
                 ") + clip[4:]\nsmall = clip.resize.Bicubic(32, 24).resize.Bicubic(64, 48)");
    EXPECT_EQ(failure(), "");
    for (const char* output : {"0", "1"}) {
      EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr(name + ", output " + output + ": frame 3 is flagged interlaced"),
                                            HasSubstr("SetFieldBased(0)"))));
    }
  }
}

TEST_F(FieldCases, E8ASpliceOfTwoSizesOrFormatsIsRefusedBeforeTheFirstStep) {
  use_clip("e8a.vpy", "YUV420P8", 640, 480,
           "small = core.std.Splice([small, core.std.BlankClip(width=320, height=240, format=vs.YUV420P8, length=6)], "
           "mismatch=True)");
  EXPECT_THAT(failure(), AllOf(HasSubstr("e8a.vpy, output 1"), HasSubstr("frame 6 is 320x240 YUV420P8"),
                               HasSubstr("640x480 YUV420P8")));
  use_clip("e8b.vpy", "YUV420P8", 640, 480,
           "clip = core.std.Splice([clip, clip.resize.Bicubic(format=vs.YUV420P10)], mismatch=True)");
  EXPECT_THAT(failure(), AllOf(HasSubstr("e8b.vpy, output 0"), HasSubstr("frame 6 is 640x480 YUV420P10"),
                               HasSubstr("640x480 YUV420P8")));
}

TEST_F(FieldCases, E12ScriptsAndClipsMayHaveAnyNameAndErrorsPrintItIntact) {
  use_clip("é あ 🎬.vpy", "YUV420P8", 64, 48, "clip = small = clip.std.SetFrameProps(_Matrix=1)");
  EXPECT_EQ(failure(), "");
  use_clip("é あ 🎬.vpy", "YUV420P8", 64, 48, "raise ValueError('é')");
  EXPECT_THAT(failure(), AllOf(HasSubstr(config_.data.script[0].path.string() + ":"), HasSubstr("ValueError: é")));
}

}  // namespace
}  // namespace reelgrad
