#include <cstdlib>

#include "reelgrad/base/files.h"
#include "reelgrad/clip/clip_test_util.h"

namespace reelgrad {
namespace {

using test::error_of;
using test::TemporaryFolder;

// An own cache folder for the time of a test.
class VideoFile : public testing::Test {
 protected:
  VideoFile() : folder_("é あ 🎬") {
    if (const char* old = std::getenv("XDG_CACHE_HOME")) old_cache_ = old;
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  }
  ~VideoFile() override {
    old_cache_.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", old_cache_.c_str(), 1);
  }
  TemporaryFolder folder_;
  std::string old_cache_;
};

TEST_F(VideoFile, OpensWithItsFramesAndKeepsAnIndexInTheCache) {
  const auto file = folder_ / "clip é.mp4";
  test::ffmpeg({"-f", "lavfi", "-i", "testsrc=s=66x50:r=30000/1001:d=2", "-pix_fmt", "yuv420p", file.string()});
  std::vector<std::string> progress;
  const Script script = Script::open(file, {.on_progress = [&](const std::string& line) { progress.push_back(line); }});
  EXPECT_FALSE(script.is_script());
  const Clip clip = input_clip(script);
  EXPECT_EQ(clip.name(), "clip é.mp4");
  EXPECT_EQ(clip.info().width, 66);
  EXPECT_EQ(clip.info().fps, (Rational{30000, 1001}));
  EXPECT_EQ(std::to_string(clip.info().frames),
            test::output_of({"ffprobe", "-v", "error", "-count_frames", "-select_streams", "v", "-show_entries",
                             "stream=nb_read_frames", "-of", "csv=p=0", file.string()})
                .substr(0, 2));
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.front().substr(0, 22), "indexing clip é.mp4: ");
  EXPECT_EQ(progress.front().back(), '%');

  test::ffmpeg({"-i", file.string(), "-f", "rawvideo", "-pix_fmt", "yuv420p", (folder_ / "raw").string()});
  const std::string raw = test::read_bytes(folder_ / "raw");
  const std::size_t size = 66 * 50 * 3 / 2;
  for (const std::int64_t n : {0, 17, 41}) {
    EXPECT_EQ(test::packed(clip.frame(n).view()), raw.substr(n * size, size)) << n;
  }

  const auto indexes = [&] {
    return std::distance(test::fs::directory_iterator(folder_ / "cache/reelgrad/index"),
                         test::fs::directory_iterator());
  };
  EXPECT_EQ(indexes(), 1);
  EXPECT_FALSE(test::fs::exists(file.string() + ".0.bsindex"));
  progress.clear();
  Script::open(file, {.on_progress = [&](const std::string& line) { progress.push_back(line); }});
  EXPECT_TRUE(progress.empty());
  EXPECT_EQ(indexes(), 1);
}

TEST_F(VideoFile, AReplacedFileIsIndexedAgain) {
  const auto file = folder_ / "a.mkv";
  for (const char* seconds : {"1", "2"}) {
    test::ffmpeg({"-f", "lavfi", "-i", std::string("testsrc=s=64x48:r=25:d=") + seconds, file.string()});
    EXPECT_EQ(input_clip(Script::open(file)).info().frames, 25 * std::stoi(seconds));
  }
}

TEST_F(VideoFile, VariableFrameRatesReachTheFrames) {
  const auto file = folder_ / "vfr.mp4";
  test::ffmpeg({"-f", "lavfi", "-i", "testsrc=s=64x48:r=25:d=1", "-vf",
                "setpts='if(lt(N,10),N/25,10/25+(N-10)*3/25)/TB'", "-fps_mode", "vfr", file.string()});
  const Clip clip = input_clip(Script::open(file));
  EXPECT_EQ(clip.frame(3).duration(), (Rational{1, 25}));
  EXPECT_EQ(clip.frame(12).duration(), (Rational{3, 25}));
}

TEST_F(VideoFile, WhatIsNoVideoIsRefusedWithThePluginsWords) {
  const Error error = error_of([&] { Script::open(folder_.write("bad.mkv", "no video")); });
  EXPECT_EQ(error.kind(), ErrorKind::failed);
  EXPECT_NE(std::string(error.what()).find("bad.mkv: cannot be read as video: bs.VideoSource: "), std::string::npos)
      << error.what();
}

TEST_F(VideoFile, AFolderOfImagesIsAClipInNaturalOrder) {
  test::fs::create_directories(folder_ / "frames");
  for (const char* n : {"9", "10", "1"}) {
    test::ffmpeg({"-f", "lavfi", "-i",
                  std::string("color=c=0x") +
                      (n[1]          ? "100000"
                       : n[0] == '9' ? "090000"
                                     : "010000") +
                      ":s=33x17,format=rgb24",
                  "-frames:v", "1", (folder_ / ("frames/" + std::string(n) + ".png")).string()});
  }
  const auto plugins = vapoursynth_versions().source_plugins;
  if (std::find(plugins.begin(), plugins.end(), "imgseqs") == plugins.end()) {
    const Error error = error_of([&] { Script::open(folder_ / "frames"); });
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_NE(std::string(error.what()).find("pip install vapoursynth-imageseqs"), std::string::npos) << error.what();
    return;
  }
  const Clip clip = input_clip(Script::open(folder_ / "frames"));
  EXPECT_EQ(clip.name(), "frames");
  ASSERT_EQ(clip.info().frames, 3);
  EXPECT_EQ(clip.info().format.name(), "RGB24");
  const int expected[] = {1, 9, 16};
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(std::to_integer<int>(clip.frame(n).view().planes[0].data[0]), expected[n]);
  }
}

TEST_F(VideoFile, AnEmptyFolderIsRefused) {
  test::fs::create_directories(folder_ / "none");
  EXPECT_NE(std::string(error_of([&] { Script::open(folder_ / "none"); }).what()).find("holds no images"),
            std::string::npos);
}

}  // namespace
}  // namespace reelgrad
