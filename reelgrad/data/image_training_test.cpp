// Training from folders of images: what is drawn, and what is refused at the start.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/data/testing.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// A PNM file (which the PNG of a test would only wrap): R the picture's number, G and B the pixel's place.
void write_picture(const fs::path& file, int number, int width, int height, int repeat) {
  fs::create_directories(file.parent_path());
  std::string ppm = "P6\n" + std::to_string(width * repeat) + " " + std::to_string(height * repeat) + "\n255\n";
  for (int y = 0; y < height * repeat; ++y) {
    for (int x = 0; x < width * repeat; ++x) {
      for (const int value : {number, x / repeat, y / repeat}) ppm += static_cast<char>(value);
    }
  }
  std::ofstream(file, std::ios::binary) << ppm;
}

class ImageTraining : public testing::Test {
 protected:
  ImageTraining() {
    config_.data.pairs = {{.input = folder_ / "LR", .target = folder_ / "HR"}};
    config_.data.batch = 8;
    config_.data.crop_px = 12;
    config_.data.segment_frames = 4;
    config_.data.pool_frames = 12;
    config_.data.reuse = 1;
    config_.model.scale = 2;
  }

  void SetUp() override {
    const std::vector<std::string> plugins = vapoursynth_versions().source_plugins;
    if (std::ranges::find(plugins, "imgseqs") == plugins.end()) {
      GTEST_SKIP() << "vapoursynth-imageseqs is not installed";
    }
  }

  // The files end in .png: imageseqs goes by the contents.
  void add(int number, int width, int height, const std::string& folder = "") const {
    const std::string name = folder + std::to_string(number);
    write_picture(folder_ / ("LR/" + name + "x2.png"), number, width, height, 1);
    write_picture(folder_ / ("HR/" + name + ".png"), number, width, height, 2);
  }
  void add_sizes(const std::vector<PictureSize>& sizes) const {
    for (std::size_t i = 0; i < sizes.size(); ++i) add(static_cast<int>(i), sizes[i].width, sizes[i].height);
  }

  std::vector<TrainingClip> open() const { return testing_data::open_clips(config_); }
  std::string refusal() const {
    try {
      open();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      return error.what();
    }
    return "";
  }

  // Values of the samples, 0 to 255.
  std::vector<Batch> batches(int steps, const std::vector<TrainingClip>& clips, torch::Device device = torch::kCPU,
                             const LoaderOptions& options = {}) const {
    TrainingLoader loader(clips, config_, device, 0, options);
    const auto values = [](const torch::Tensor& samples) { return (samples * 255).round().to(torch::kLong).cpu(); };
    std::vector<Batch> list;
    for (int step = 0; step < steps; ++step) {
      const Batch batch = loader.next(step, 0, config_.data.batch);
      list.push_back({values(batch.input), values(batch.target)});
    }
    return list;
  }

  test::TemporaryFolder folder_;
  Config config_;
};

TEST_F(ImageTraining, CropsComeFromEveryPlaceOfEveryPictureWhateverItsSize) {
  const std::vector<PictureSize> sizes{{31, 17}, {13, 40}, {64, 12}, {12, 12}, {20, 21}, {33, 16}, {15, 60}};
  add_sizes(sizes);
  std::vector<std::set<std::pair<int, int>>> corners(sizes.size());
  for (const Batch& batch : batches(300, open())) {
    const torch::Tensor large = batch.input.repeat_interleave(2, 2).repeat_interleave(2, 3);
    ASSERT_TRUE(torch::equal(batch.target, large));
    for (int i = 0; i < config_.data.batch; ++i) {
      const torch::Tensor input = batch.input[i];
      const auto number = static_cast<std::size_t>(input[0][0][0].item<std::int64_t>());
      ASSERT_TRUE(input[0].eq(static_cast<std::int64_t>(number)).all().item<bool>());
      const int x = input[1].min().item<int>(), y = input[2].min().item<int>();
      // Inside the picture, and a whole crop of it, turned or not.
      ASSERT_LE(x + 12, sizes[number].width);
      ASSERT_LE(y + 12, sizes[number].height);
      ASSERT_EQ(input[1].max().item<int>(), x + 11);
      ASSERT_EQ(input[2].max().item<int>(), y + 11);
      corners[number].insert({x, y});
    }
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::set<int> xs, ys;
    for (const auto& [x, y] : corners[i]) {
      xs.insert(x);
      ys.insert(y);
    }
    // 2,400 samples of 7 pictures: each x and each y of the largest is missed with a chance below 53 * e^-6.
    EXPECT_EQ(*xs.rbegin(), sizes[i].width - 12) << i;
    EXPECT_EQ(*ys.rbegin(), sizes[i].height - 12) << i;
    EXPECT_GE(xs.size(), static_cast<std::size_t>(sizes[i].width - 12) * 9 / 10) << i;
    EXPECT_GE(ys.size(), static_cast<std::size_t>(sizes[i].height - 12) * 9 / 10) << i;
  }
}

TEST_F(ImageTraining, ASegmentHoldsPicturesFromAllOverTheFolder) {
  for (int i = 0; i < 64; ++i) add(i, 12, 12);
  config_.data.segment_frames = 16;
  config_.data.pool_frames = 16;
  config_.data.batch = 64;
  std::set<int> numbers;
  for (const Batch& batch : batches(1, open())) {
    for (int i = 0; i < 64; ++i) numbers.insert(batch.input[i][0][0][0].item<int>());
  }
  // One segment of 16 in order of the names would reach over 15.
  EXPECT_GT(*numbers.rbegin() - *numbers.begin(), 30);
}

TEST_F(ImageTraining, TheSameSeedDrawsTheSameAndAnotherSeedOthers) {
  add_sizes({{31, 17}, {13, 40}, {64, 12}, {20, 20}, {21, 22}, {16, 16}});
  const std::vector<Batch> first = batches(5, open()), again = batches(5, open());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i].input, again[i].input));
  config_.run.seed = 2;
  EXPECT_FALSE(torch::equal(batches(1, open())[0].input, first[0].input));
}

TEST_F(ImageTraining, ImagesAndScriptsShareTheSamplesByWeight) {
  for (int i = 0; i < 8; ++i) add(i, 20, 20);
  config_.data.script = {{.path = folder_.write("white.vpy", R"(
import vapoursynth as vs
clip = vs.core.std.BlankClip(format=vs.RGB24, width=64, height=64, length=40, color=[255, 255, 255])
clip.set_output(0)
clip.resize.Bicubic(32, 32).set_output(1)
)"),
                          .weight = 3}};
  config_.data.batch = 4;  // a segment a step: the steps see the scripts' turns at every phase
  std::int64_t white = 0, samples = 0;
  for (const Batch& batch : batches(200, open())) {
    white += batch.input.select(1, 0).select(1, 0).select(1, 0).eq(255).sum().item<std::int64_t>();
    samples += config_.data.batch;
  }
  EXPECT_NEAR(static_cast<double>(white) / static_cast<double>(samples), 0.75, 0.06);  // four deviations
}

TEST_F(ImageTraining, ImagesOfValidationAreNeverDrawn) {
  for (int i = 0; i < 10; ++i) add(i, 12, 12);
  config_.validation.frames = "0.8:";
  const std::vector<TrainingClip> clips = open();
  ASSERT_EQ(clips.size(), 1U);
  EXPECT_EQ(clips[0].span.end, 8);
  EXPECT_EQ(clips[0].images->list().size(), 10U);
  std::set<int> numbers;
  for (const Batch& batch : batches(40, clips)) {
    for (int i = 0; i < config_.data.batch; ++i) numbers.insert(batch.input[i][0][0][0].item<int>());
  }
  EXPECT_EQ(numbers, (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(ImageTraining, RefusesWhatTheImagesMakeImpossible) {
  add_sizes({{31, 17}, {13, 40}});
  add(7, 11, 40, "sub/");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("data.pairs: " + (folder_ / "LR").string()), HasSubstr("LR/sub/7x2.png is 11x40"),
                    HasSubstr("data.crop_px = 12"), HasSubstr("8 to 11")));
  config_.data.crop_px = 8;
  config_.validation.frames = "0:3";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("validation.frames = \"0:3\""), HasSubstr("none of the 3 images")));
  config_.validation.frames = "";
  config_.model.scale = 4;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("the target is "), HasSubstr("model.scale = 4")));
}

using ImageTrainingGpu = ImageTraining;

TEST_F(ImageTrainingGpu, ACardCutsTheSameCropsWhereverThePicturesLie) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  add_sizes({{31, 17}, {13, 40}, {64, 12}, {12, 12}, {20, 21}, {33, 16}, {15, 60}});
  const std::vector<Batch> expected = batches(50, open());
  for (const FramePool::Place place : {FramePool::Place::device, FramePool::Place::pinned_host}) {
    const std::vector<Batch> list = batches(50, open(), torch::Device(torch::kCUDA, 0), {.place = place});
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_TRUE(torch::equal(list[i].input, expected[i].input)) << i;
      EXPECT_TRUE(torch::equal(list[i].target, expected[i].target)) << i;
    }
  }
}

TEST_F(ImageTraining, ABadImageEndsTheRunWithItsName) {
  add_sizes({{31, 17}, {13, 40}, {64, 12}, {20, 20}});
  const fs::path bad = folder_ / "LR/2x2.png";
  const std::vector<TrainingClip> clips = open();
  fs::resize_file(bad, fs::file_size(bad) / 2);
  try {
    batches(50, clips);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(bad.string()));
  }
}

}  // namespace
}  // namespace reelgrad
