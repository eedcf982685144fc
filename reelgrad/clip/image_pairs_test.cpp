#include "reelgrad/clip/image_pairs.h"

#include <gmock/gmock.h>

#include <numeric>

#include "reelgrad/base/log.h"
#include "reelgrad/clip/clip_test_util.h"
#include "reelgrad/clip/frame_stream.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

bool reads_images() {
  const auto plugins = vapoursynth_versions().source_plugins;
  return std::find(plugins.begin(), plugins.end(), "imgseqs") != plugins.end();
}

// Pictures of noise in two folders, written by ffmpeg.
class ImageFolders : public testing::Test {
 protected:
  void SetUp() override {
    if (!reads_images()) GTEST_SKIP() << "vapoursynth-imageseqs is not installed";
  }

  // `name` in the folder; `format`: ffmpeg's name of the samples.
  void image(const std::string& name, int width, int height, const std::string& format = "rgb24",
             const std::vector<std::string>& options = {}) const {
    const fs::path file = folder_ / name;
    fs::create_directories(file.parent_path());
    std::vector<std::string> arguments{
        "-f",
        "lavfi",
        "-i",
        "nullsrc=s=" + std::to_string(width) + "x" + std::to_string(height) +
            ":r=25,geq=r='mod(17*X+31*Y\\,256)':g='mod(5*X*Y\\,256)':b='255-mod(9*X\\,256)',format=" + format,
        "-frames:v",
        "1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back(file.string());
    test::ffmpeg(arguments);
  }
  void pair(const std::string& name, int width, int height) const {
    image("LR/" + name, width, height);
    image("HR/" + name, 2 * width, 2 * height);
  }

  ImagePairs open(int scale = 2) const { return ImagePairs::open(folder_ / "LR/", folder_ / "HR/", scale); }
  std::string refusal(ErrorKind kind = ErrorKind::usage, int scale = 2) const {
    const Error error = error_of([&] { open(scale); });
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }

  std::vector<std::string> names(const ImagePairs& pairs) const {
    std::vector<std::string> list;
    for (const ImagePair& pair : pairs.list()) {
      list.push_back(pair.input.lexically_relative(folder_.path()).string() + " " +
                     pair.target.lexically_relative(folder_.path()).string());
    }
    return list;
  }

  // What another reader makes of the file: ffmpeg's planes of red, green and blue, one after the other.
  std::string reference(const std::string& name, const std::string& format) const {
    const fs::path raw = folder_ / "reference";
    test::ffmpeg({"-i", (folder_ / name).string(), "-f", "rawvideo", "-pix_fmt", format, raw.string()});
    return test::read_bytes(raw);
  }

  test::TemporaryFolder folder_{"é あ 🎬"};
};

std::vector<std::size_t> all_of(const ImagePairs& pairs) {
  std::vector<std::size_t> indices(pairs.list().size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

TEST_F(ImageFolders, PartnersAreFoundByNameInNaturalOrder) {
  pair("10.png", 8, 8);
  pair("9.png", 8, 8);
  pair("sub/a.png", 8, 8);
  folder_.write("LR/notes.txt", "no image");
  folder_.write("LR/._9.png", "what macOS leaves behind");
  folder_.write("LR/.cache/1.png", "no image");
  EXPECT_THAT(names(open()), ElementsAre("LR/9.png HR/9.png", "LR/10.png HR/10.png", "LR/sub/a.png HR/sub/a.png"));
}

TEST_F(ImageFolders, EndingsAndWhatTellsTheSidesApartDoNotCount) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"0001x2.png", "0001.png"},        {"0001x4m.png", "0001.jpg"}, {"a_LR.webp", "a_HR.png"},
      {"Canon_LR2.png", "Canon_HR.png"}, {"b-lq.png", "b_gt.png"},    {"max4x2.png", "max4.png"},
      {"s/1_x2.bmp", "s/1.tif"}};
  for (const auto& [input, target] : cases) {
    image("LR/" + input, 8, 8, input.ends_with("webp") ? "bgra" : "rgb24");
    image("HR/" + target, 16, 16);
    EXPECT_THAT(names(open()), ElementsAre("LR/" + input + " HR/" + target));
    fs::remove_all(folder_ / "LR");
    fs::remove_all(folder_ / "HR");
  }
}

TEST_F(ImageFolders, MissingPartnersAreCountedAndThreeAreNamed) {
  for (const char* name : {"1", "2", "3", "4", "5", "6"}) image("HR/" + std::string(name) + ".png", 16, 16);
  image("LR/2x2.png", 8, 8);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("HR: 5 of 6 images have no partner in "),
                               HasSubstr("LR: 1.png, 3.png, 4.png, …"), Not(HasSubstr("6.png"))));
  for (const char* name : {"1", "2", "3", "5", "6", "7"}) image("LR/" + std::string(name) + "x2.png", 8, 8);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("LR: 1 of 6 images has no partner in "), HasSubstr("HR: 7x2.png. ")));
}

TEST_F(ImageFolders, RefusesWhatCannotBePaired) {
  EXPECT_THAT(refusal(), HasSubstr("LR: no such folder of images"));
  fs::create_directories(folder_ / "LR");
  EXPECT_THAT(refusal(), HasSubstr("LR: the folder holds no images"));
  pair("a.png", 8, 9);
  EXPECT_THAT(refusal(ErrorKind::usage, 3),
              AllOf(HasSubstr("HR/a.png: the target is 16x18, its input "), HasSubstr("LR/a.png is 8x9"),
                    HasSubstr("model.scale = 3"), HasSubstr("24x27")));
  image("LR/a.jpg", 8, 8);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("LR: "), HasSubstr("a.jpg"), HasSubstr("a.png"), HasSubstr("one image")));
  fs::remove(folder_ / "LR/a.jpg");
  folder_.write("LR/a.png", "text");
  EXPECT_THAT(refusal(ErrorKind::failed), HasSubstr("LR/a.png: cannot be read as an image: "));
}

TEST_F(ImageFolders, AnAnimationIsRefused) {
  pair("b.png", 8, 8);
  fs::remove(folder_ / "LR/b.png");
  test::ffmpeg(
      {"-f", "lavfi", "-i", "testsrc=s=8x8:r=25", "-frames:v", "3", "-f", "apng", (folder_ / "LR/b.png").string()});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("LR/b.png: an animation of "), HasSubstr("single pictures")));
}

// vapoursynth-imageseqs 0.4.1 ends the process when it meets such a picture among others.
TEST_F(ImageFolders, ALossyWebpOfOddSizeIsRefusedByName) {
  pair("a.png", 8, 8);
  image("LR/b.webp", 9, 7, "yuv420p", {"-c:v", "libwebp"});
  image("HR/b.png", 18, 14);
  EXPECT_THAT(refusal(ErrorKind::failed), AllOf(HasSubstr("LR/b.webp: "), HasSubstr("odd"), HasSubstr("PNG")));
}

TEST_F(ImageFolders, EveryPictureKeepsItsSizeAndItsPixels) {
  const std::vector<std::pair<int, int>> sizes{{31, 17}, {8, 40}, {64, 9}};
  for (std::size_t i = 0; i < sizes.size(); ++i) pair(std::to_string(i) + ".png", sizes[i].first, sizes[i].second);
  const ImagePairs pairs = open();
  const ClipPair clips = pairs.clips({2, 0, 1});
  EXPECT_EQ(clips.input.info().width, 64);
  EXPECT_EQ(clips.input.info().height, 40);
  EXPECT_EQ(clips.target.info().width, 128);
  EXPECT_EQ(clips.target.info().height, 80);
  EXPECT_EQ(clips.input.info().frames, 3);
  EXPECT_EQ(clips.input.info().format.name(), "RGB24");
  FrameStream inputs(clips.input, 0, 3), targets(clips.target, 0, 3);
  for (const std::size_t i : {2, 0, 1}) {
    const std::string name = std::to_string(i) + ".png";
    const Frame input = *inputs.next(), target = *targets.next();
    EXPECT_EQ(pairs.list()[i].size, (PictureSize{input.view().width, input.view().height}));
    EXPECT_EQ(input.view().width, sizes[i].first);
    EXPECT_EQ(input.view().height, sizes[i].second);
    EXPECT_EQ(input.view().color.range, 1);
    // ffmpeg's gbrp is planar in the order G, B, R.
    const auto gbr = [](const Frame& frame) {
      std::vector<std::byte> bytes;
      pack_planes(frame.view(), {1, 2, 0}, bytes);
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    EXPECT_EQ(gbr(input), reference("LR/" + name, "gbrp")) << name;
    EXPECT_EQ(gbr(target), reference("HR/" + name, "gbrp")) << name;
  }
}

// PNM files: imageseqs goes by the contents. Enough of them that several threads look at their headers.
TEST_F(ImageFolders, ManyImagesAreOpenedWithProgress) {
  constexpr int kCount = 600;
  const auto write = [&](const std::string& name, int width, int height) {
    folder_.write(name, "P5\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n" +
                            std::string(static_cast<std::size_t>(width) * static_cast<std::size_t>(height), 'x'));
  };
  for (int i = 0; i < kCount; ++i) {
    write("LR/" + std::to_string(i) + ".png", 8 + i % 7, 8 + i % 5);
    write("HR/" + std::to_string(i) + ".png", 2 * (8 + i % 7), 2 * (8 + i % 5));
  }
  std::vector<std::string> progress;
  const ImagePairs pairs = ImagePairs::open(
      folder_ / "LR", folder_ / "HR", 2, {.on_progress = [&](const std::string& text) { progress.push_back(text); }});
  ASSERT_EQ(pairs.list().size(), static_cast<std::size_t>(kCount));
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(pairs.list()[static_cast<std::size_t>(i)].size, (PictureSize{8 + i % 7, 8 + i % 5})) << i;
  }
  ASSERT_FALSE(progress.empty());
  EXPECT_THAT(progress, testing::Each(testing::MatchesRegex("looking at images: [0-9]+%")));
  write("LR/300.png", 8, 9);
  EXPECT_THAT(refusal(), HasSubstr("HR/300.png: the target is "));
  folder_.write("HR/400.png", "none");
  folder_.write("HR/500.png", "none");
  EXPECT_THAT(refusal(ErrorKind::failed), HasSubstr("HR/400.png"));
}

TEST_F(ImageFolders, OneFormatHoldsThemAllExactly) {
  image("HR/a.png", 8, 8);
  image("HR/b.png", 8, 8, "gray");
  image("HR/c.png", 8, 8, "gray16be");
  image("HR/d.png", 8, 8, "rgb48be");
  for (const char* name : {"a", "b", "c", "d"}) image("LR/" + std::string(name) + ".png", 8, 8, "gray");
  const ImagePairs pairs = open(1);
  const ClipPair clips = pairs.clips(all_of(pairs));
  EXPECT_EQ(clips.input.info().format.name(), "Gray8");
  EXPECT_EQ(clips.target.info().format.name(), "RGB48");
  const auto first = [&](int frame, int plane) {
    const FrameView view = clips.target.frame(frame).view();
    return *reinterpret_cast<const std::uint16_t*>(view.planes[plane].data + 2 * view.planes[plane].stride_bytes + 6);
  };
  const auto expected = [&](const std::string& name, int plane) {  // at x = 3, y = 2
    const std::size_t at = (2 * 8 + 3) * 3 + static_cast<std::size_t>(plane);
    const auto byte = [](const std::string& bytes, std::size_t i) { return int{static_cast<std::uint8_t>(bytes[i])}; };
    if (name < "c") return 257 * byte(reference("HR/" + name + ".png", "rgb24"), at);  // full range
    const std::string bytes = reference("HR/" + name + ".png", "rgb48le");
    return byte(bytes, 2 * at) + 256 * byte(bytes, 2 * at + 1);
  };
  for (int frame = 0; frame < 4; ++frame) {
    for (int plane = 0; plane < 3; ++plane) {
      const std::string name(1, static_cast<char>('a' + frame));
      EXPECT_EQ(first(frame, plane), expected(name, plane)) << name << plane;
    }
  }
  EXPECT_EQ(pairs.clips({1}).target.frame(0).view().format.name(), "RGB48");
}

TEST_F(ImageFolders, JpegAndWebpAreWhatOtherReadersSee) {
  image("LR/j.jpg", 40, 30, "yuvj444p", {"-q:v", "2"});
  image("HR/j.jpg", 40, 30, "yuvj444p", {"-q:v", "2"});
  for (const char* side : {"LR/w.webp", "HR/w.webp"}) {
    const fs::path file = folder_ / side;
    test::ffmpeg({"-f", "lavfi", "-i", "testsrc=s=64x48:r=25", "-frames:v", "1", "-c:v", "libwebp", "-pix_fmt",
                  "yuv420p", file.string()});
  }
  const ImagePairs pairs = open(1);
  const ClipPair clips = pairs.clips(all_of(pairs));
  EXPECT_EQ(clips.input.info().format.name(), "RGB24");
  // libwebp's own decoder, through Pillow: rounding and its smoothing of chroma leave two codes.
  const fs::path script =
      folder_.write("pillow.py",
                    "import sys\nfrom PIL import Image\n"
                    "image = Image.open(sys.argv[1]).convert('RGB')\n"
                    "open(sys.argv[2], 'wb').write(b''.join(p.tobytes() for p in image.split()))\n");
  for (const auto& [name, frame] : {std::pair{"j.jpg", 0}, std::pair{"w.webp", 1}}) {
    test::python(script, {(folder_ / "LR" / name).string(), (folder_ / "raw").string()});
    const std::string wanted = test::read_bytes(folder_ / "raw"), got = test::packed(clips.input.frame(frame).view());
    ASSERT_EQ(got.size(), wanted.size());
    int largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<std::uint8_t>(got[i]) - static_cast<std::uint8_t>(wanted[i])));
    }
    EXPECT_LE(largest, 2) << name;
  }
}

TEST_F(ImageFolders, AlphaIsLeftOutWithOneWarning) {
  for (const char* name : {"a", "b"}) {
    image("LR/" + std::string(name) + ".png", 8, 8, "rgba");
    image("HR/" + std::string(name) + ".png", 16, 16);
  }
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level level, std::string_view text) {
    if (level == log::Level::warning) warnings.emplace_back(text);
  });
  const ClipPair clips = open().clips({0, 1});
  for (int n : {0, 1, 0}) {
    EXPECT_EQ(clips.input.frame(n).view().format.name(), "RGB24");
    clips.target.frame(n);
  }
  log::set_sink({});
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("LR: "), HasSubstr("a.png"), HasSubstr("alpha"))));
}

TEST_F(ImageFolders, APictureThatWasReplacedOrDamagedIsNamed) {
  for (const char* name : {"a.png", "b.png", "c.png"}) pair(name, 8, 8);
  const ClipPair clips = open().clips({0, 1, 2});
  image("LR/b.png", 12, 8);
  const std::string bytes = test::read_bytes(folder_ / "LR/c.png");
  folder_.write("LR/c.png", bytes.substr(0, bytes.size() / 2));
  EXPECT_EQ(clips.input.frame(0).view().width, 8);
  const auto failure = [&](std::int64_t frame) {
    return std::string(error_of([&] { clips.input.frame(frame); }).what());
  };
  EXPECT_THAT(failure(1), StartsWith((folder_ / "LR/b.png").string() + ": "));
  EXPECT_THAT(failure(2), StartsWith((folder_ / "LR/c.png").string() + ": "));
  FrameStream stream(clips.input, {2});
  EXPECT_EQ(error_of([&] { stream.next(); }).what(), failure(2));
}

}  // namespace
}  // namespace reelgrad
