#include "reelgrad/frames/loader.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/data/testing.h"

namespace reelgrad {
namespace {

using testing::HasSubstr;

class FrameLoaderTest : public testing::Test {
 protected:
  FrameLoaderTest() {
    options_.script = folder_.write("numbered.vpy", testing_data::kNumberedScript);
    options_.color = "gray";
    options_.batch = 8;
    options_.crop_px = 12;
    options_.segment_frames = 4;
    options_.pool_frames = 12;
    options_.reuse = 1;
  }

  std::string refusal() const {
    try {
      FrameLoader loader(options_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "accepted";
  }

  test::TemporaryFolder folder_;
  FrameLoaderOptions options_;
};

TEST_F(FrameLoaderTest, GivesTheBatchesThatTrainingDraws) {
  const Config config = testing_data::numbered_config(options_.script);
  TrainingLoader training(testing_data::open_clips(config), config, torch::kCPU, 0);
  FrameLoader loader(options_);
  for (std::int64_t step = 0; step < 20; ++step) {
    const Batch expected = training.next(step, 0, 8);
    const FrameBatch batch = loader.next();
    ASSERT_EQ(batch.input.sizes(), torch::IntArrayRef({8, 1, 12, 12}));
    ASSERT_EQ(batch.target.sizes(), torch::IntArrayRef({8, 1, 24, 24}));
    EXPECT_TRUE(torch::equal(batch.input, expected.input));
    EXPECT_TRUE(torch::equal(batch.target, expected.target));
  }
  EXPECT_THAT(loader.describe(), HasSubstr("40 frames in 10 segments"));
}

TEST_F(FrameLoaderTest, GoesOnWhereAnEarlierLoopStopped) {
  FrameLoader whole(options_);
  std::vector<FrameBatch> batches;
  for (int i = 0; i < 8; ++i) batches.push_back(whole.next());
  options_.first_batch = 5;
  FrameLoader rest(options_);
  FrameLoader moved = std::move(rest);
  for (std::size_t i = 5; i < 8; ++i) EXPECT_TRUE(torch::equal(moved.next().input, batches[i].input));
}

TEST_F(FrameLoaderTest, TakesArgumentsWindowsAndAnyScale) {
  options_.script = folder_.write("same.vpy", R"(
import vapoursynth as vs
clip = vs.core.std.BlankClip(format=vs.GRAY8, width=7 * int(side), height=7 * int(side), length=9)
clip.set_output(0)
clip.resize.Bicubic(int(side), int(side)).set_output(1)
)");
  options_.args = {{"side", "16"}};
  options_.scale = 7;
  options_.window = 3;
  const FrameBatch batch = FrameLoader(options_).next();
  EXPECT_EQ(batch.input.sizes(), torch::IntArrayRef({8, 3, 1, 12, 12}));
  EXPECT_EQ(batch.target.sizes(), torch::IntArrayRef({8, 1, 84, 84}));
}

TEST_F(FrameLoaderTest, RefusesWrongOptionsByName) {
  const FrameLoaderOptions good = options_;
  options_.batch = 0;
  EXPECT_EQ(refusal(), "FrameLoader: batch: 0 is out of range, allowed: an integer from 1 to 65536");
  options_ = good;
  options_.window = 2;
  EXPECT_EQ(refusal(), "FrameLoader: window: 2 is even, allowed: an odd number");
  options_ = good;
  options_.color = "rgbb";
  EXPECT_EQ(refusal(), "FrameLoader: color: unknown \"rgbb\" (did you mean \"rgb\"?)");
  options_ = good;
  options_.scale = 3;
  EXPECT_THAT(refusal(), HasSubstr("numbered.vpy: output 0 (target) is 128x64, output 1 (input) 64x32"));
  options_.scale = 0;
  EXPECT_EQ(refusal(), "FrameLoader: scale: 0 is out of range, allowed: from 1 up");
  options_ = good;
  options_.crop_px = 33;
  EXPECT_THAT(refusal(), HasSubstr("the input is 64x32, but data.crop_px = 33"));
  options_ = good;
  options_.script = folder_ / "none.vpy";
  EXPECT_THAT(refusal(), HasSubstr("none.vpy\" does not exist"));
  options_.script.clear();
  EXPECT_THAT(refusal(), HasSubstr("FrameLoader: script: missing"));
  options_.inputs = folder_.path();
  EXPECT_THAT(refusal(), HasSubstr("FrameLoader: pairs[0].target: an empty path"));
  options_.targets = folder_.path();
  EXPECT_THAT(refusal(), HasSubstr("the folder holds no images"));
}

}  // namespace
}  // namespace reelgrad
