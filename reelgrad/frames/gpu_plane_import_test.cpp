// Frames on the card, end to end, compared byte for byte with those that come through host memory. Every test needs a
// card, and VapourSynth to be able to use it (`reelgrad inspect CLIP` says so): otherwise it is skipped with the
// reason.
#include "reelgrad/frames/gpu_plane_import.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/clip/noise_script.h"
#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Outputs of many formats and sizes, behind kNoiseScript.
constexpr const char* kManyFormats = R"(
formats = [vs.GRAY8, vs.GRAY16, vs.GRAYS, vs.YUV420P8, vs.YUV420P10, vs.YUV422P8, vs.YUV422P12, vs.YUV444P16,
           vs.YUV444PS, vs.YUV411P8, vs.RGB24, vs.RGB30, vs.RGB48, vs.RGBH, vs.RGBS]
index = 0
for format in formats:
    f = core.get_video_format(format)
    odd = [(1, 1), (31, 5), (641, 359)] if f.subsampling_w == f.subsampling_h == 0 else []
    for width, height in odd + [(4, 2), (36, 6), (68, 38), (1364, 766)]:
        noisy(width, height, format, 3, any_bits=True).set_output(index)
        index += 1
)";

// A hundred frames of 320x180; frame 60 fails when `broken` is "yes".
constexpr const char* kNumbered = R"(
import numpy as np
import vapoursynth as vs
core = vs.core
def number(n, f):
    if n == 60 and globals().get("broken", "no") == "yes":
        raise ValueError("the tape is torn")
    f = f.copy()
    for p in range(3):
        plane = np.asarray(f[p])
        y, x = np.mgrid[0:plane.shape[0], 0:plane.shape[1]]
        np.copyto(plane, ((x * 3 + y * 5 + n * 7 + p) % 256).astype(np.uint8))
    return f
blank = core.std.BlankClip(width=320, height=180, format=vs.YUV420P8, length=100)
clip = core.std.ModifyFrame(blank, blank, number)
if globals().get("card", "no") == "yes":
    clip = clip.std.GPUUpload()
clip.set_output(0)
clip.set_output(1)
)";

// Empty when every row of every plane is the same, else where it is not.
std::string difference(const DevicePicture& picture, const FrameView& host) {
  if (picture.format() != host.format || picture.width() != host.width || picture.height() != host.height) {
    return fmt::format("{} {}x{} on the card, {} {}x{} in host memory", picture.format().name(), picture.width(),
                       picture.height(), host.format.name(), host.width, host.height);
  }
  picture.wait_on(c10::cuda::getCurrentCUDAStream(picture.block().device().index()));
  const torch::Tensor block = picture.block().cpu();
  std::string first;
  int rows = 0, wrong = 0;
  for (int p = 0; p < host.format.planes(); ++p) {
    const auto bytes =
        static_cast<std::size_t>(host.format.plane_width(host.width, p)) * host.format.bytes_per_sample();
    for (int y = 0; y < host.format.plane_height(host.height, p); ++y, ++rows) {
      const std::byte* ours = bytes_of(block) + picture.layout().offset[p] + y * picture.layout().stride[p];
      const std::byte* theirs = host.planes[p].data + y * host.planes[p].stride_bytes;
      const auto at = static_cast<std::size_t>(std::mismatch(ours, ours + bytes, theirs).first - ours);
      if (at == bytes) continue;
      ++wrong;
      if (!first.empty()) continue;
      first = fmt::format("plane {} row {} byte {}: {} on the card, {} in host memory", p, y, at,
                          static_cast<int>(ours[at]), static_cast<int>(theirs[at]));
    }
  }
  return wrong == 0 ? "" : fmt::format("{} of {} rows differ, first {}", wrong, rows, first);
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

std::string text(const ImportCounts& counts) {
  return fmt::format("{} frames, {} imports, {} open, {} semaphores, {} unread", counts.frames, counts.imports,
                     counts.open_imports, counts.open_semaphores, counts.unread);
}

class GpuPlaneImportTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card on this machine";
    const Clip clip =
        open(folder_.write("probe.vpy", "import vapoursynth as vs\nvs.core.std.BlankClip().set_output()"));
    if (!clip.impl().core->card().usable) GTEST_SKIP() << clip.frame_path().why;
  }

  // An output with its frames on the card, before Clip::on_gpu.
  Clip open(const fs::path& path, int index = 0, std::map<std::string, std::string> args = {}) const {
    args["card"] = "yes";
    return Script::open(path, {.args = args, .card = card_of(torch::kCUDA)}).output(index).value();
  }
  static Clip open_host(const fs::path& path, int index = 0) { return Script::open(path).output(index).value(); }

  Clip on_card(const Clip& clip) const {
    const Clip read = clip.on_gpu(target());
    EXPECT_TRUE(read.frame_path().gpu) << clip.name() << ": " << read.frame_path().why;
    return read;
  }
  const CudaFrameTarget& target() const {
    if (!target_) target_.emplace(torch::kCUDA);
    return *target_;
  }

  static void expect_equal(const Frame& card, const Frame& host) {
    const auto picture = device_picture(card);
    ASSERT_NE(picture, nullptr) << "frame " << card.number() << " came through host memory";
    EXPECT_EQ(card.number(), host.number());
    EXPECT_EQ(card.view().color, host.view().color) << "frame " << card.number();
    EXPECT_EQ(card.duration(), host.duration()) << "frame " << card.number();
    ASSERT_EQ(difference(*picture, host.view()), "") << "frame " << card.number();
  }

  static void expect_equal(const Clip& card, const Clip& host, const std::vector<std::int64_t>& frames,
                           const StreamOptions& options = {}) {
    FrameStream on_card(card, frames, options), on_host(host, frames);
    for (std::size_t i = 0; i < frames.size(); ++i) {
      expect_equal(on_card.next().value(), on_host.next().value());
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  static std::vector<std::int64_t> first_frames(const Clip& clip, std::int64_t count) {
    std::vector<std::int64_t> frames;
    for (std::int64_t n = 0; n < std::min(count, clip.info().frames); ++n) frames.push_back(n);
    return frames;
  }

  // A video that ffmpeg makes; empty where it cannot.
  fs::path encoded(const std::string& name, const std::vector<std::string>& codec) const {
    std::vector<std::string> argv{
        "ffmpeg", "-y", "-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=642x362:rate=24:duration=4"};
    argv.insert(argv.end(), codec.begin(), codec.end());
    argv.push_back((folder_ / name).string());
    if (find_program("ffmpeg").empty()) return {};
    return run_process(argv, std::chrono::minutes(2)).exit_code == 0 ? folder_ / name : fs::path();
  }

  void expect_file_decodes_alike(const fs::path& file) const {
    const Clip clip = open(file);
    if (!clip.frame_path().gpu) GTEST_SKIP() << file << ": " << clip.frame_path().why;
    const Clip host = open_host(file);
    EXPECT_EQ(clip.info().format, host.info().format);
    EXPECT_EQ(clip.info().frames, host.info().frames);
    expect_equal(on_card(clip), host, first_frames(clip, 60));
  }

  test::TemporaryFolder folder_;

 private:
  mutable std::optional<CudaFrameTarget> target_;
};

TEST_F(GpuPlaneImportTest, UploadsOfEveryFormatAndSizeAreTheSame) {
  const auto script = folder_.write("noise.vpy", std::string(test::kNoiseScript) + kManyFormats);
  const Script host = Script::open(script);
  const Script card = Script::open(script, {.args = {{"card", "yes"}}, .card = card_of(torch::kCUDA)});
  for (const int index : host.outputs()) {
    const Clip clip = card.output(index).value();
    SCOPED_TRACE(
        fmt::format("output {}: {} {}x{}", index, clip.info().format.name(), clip.info().width, clip.info().height));
    expect_equal(on_card(clip), host.output(index).value(), {0, 1, 2});
  }
}

TEST_F(GpuPlaneImportTest, RealVideoDecodesAlike) {
  const char* clips = std::getenv("REELGRAD_CLIPS");
  const fs::path file = fs::path(clips ? clips : "") / "bigbuckbunny.mp4";
  if (!fs::exists(file)) GTEST_SKIP() << "REELGRAD_CLIPS names no folder with bigbuckbunny.mp4";
  expect_file_decodes_alike(file);
}

TEST_F(GpuPlaneImportTest, EightBitsDecodeAlike) {
  const fs::path file = encoded("8.mkv", {"-c:v", "libx264", "-bf", "3", "-pix_fmt", "yuv420p"});
  if (file.empty()) GTEST_SKIP() << "no ffmpeg with libx264";
  expect_file_decodes_alike(file);
}

TEST_F(GpuPlaneImportTest, TenBitsDecodeAlike) {
  const fs::path file =
      encoded("10.mkv", {"-c:v", "libx265", "-x265-params", "log-level=error", "-pix_fmt", "yuv420p10le"});
  if (file.empty()) GTEST_SKIP() << "no ffmpeg with libx265";
  expect_file_decodes_alike(file);
}

TEST_F(GpuPlaneImportTest, WhatTheCardCannotDecodeComesThroughHostMemory) {
  const fs::path file = encoded("lossless.mkv", {"-c:v", "ffv1", "-pix_fmt", "gbrp"});
  if (file.empty()) GTEST_SKIP() << "no ffmpeg with ffv1";
  const Clip clip = open(file);
  EXPECT_FALSE(clip.frame_path().gpu);
  EXPECT_THAT(clip.frame_path().why, HasSubstr("bs.VideoSource does not decode it on the card: "));
  const Frame frame = clip.on_gpu(target()).frame(3);
  EXPECT_EQ(device_picture(frame), nullptr);
  EXPECT_NE(frame.view().planes[0].data, nullptr);
}

TEST_F(GpuPlaneImportTest, SeekingAndRepeatsGiveTheFramesAskedFor) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  expect_equal(on_card(open(script)), open_host(script), {99, 5, 5, 5, 0, 41, 5, 98, 2, 0, 0, 50}, {.in_flight = 8});
  const fs::path file = encoded("seek.mkv", {"-c:v", "libx264", "-g", "30", "-pix_fmt", "yuv420p"});
  if (file.empty()) return;
  const Clip video = open(file);
  if (video.frame_path().gpu) expect_equal(on_card(video), open_host(file), {90, 3, 3, 55, 0, 89, 31, 30, 29});
}

TEST_F(GpuPlaneImportTest, SeveralStreamsAtOnce) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  const Script opened = Script::open(script, {.args = {{"card", "yes"}}, .card = card_of(torch::kCUDA)});
  const Clip first = on_card(opened.output(0).value()), second = on_card(opened.output(1).value());
  const Clip other_core = on_card(open(script)), host = open_host(script);
  std::vector<std::jthread> threads;
  for (const Clip& clip : {first, second, first, other_core}) {
    threads.emplace_back([&, clip] {
      try {
        expect_equal(clip, host, first_frames(clip, 100), {.in_flight = 6});
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
}

TEST_F(GpuPlaneImportTest, OneImportAndOneUnreadFrameAreEnough) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  const CudaFrameTarget small(torch::kCUDA, {.max_imports = 1, .max_unread = 1});
  const Clip clip = open(script).on_gpu(small);
  ASSERT_TRUE(clip.frame_path().gpu) << clip.frame_path().why;
  expect_equal(clip, open_host(script), first_frames(clip, 100), {.in_flight = 8});
  EXPECT_LE(small.counts().open_imports, 1) << text(small.counts());
  EXPECT_LE(small.counts().unread, 1) << text(small.counts());
}

TEST_F(GpuPlaneImportTest, DescriptorsAndImportsDoNotGrow) {
  const auto script = folder_.write("many.vpy",
                                    "import vapoursynth as vs\n"
                                    "clip = vs.core.std.BlankClip(width=1280, height=720, format=vs.YUV420P8, "
                                    "length=800, color=[90, 120, 130])\n"
                                    "clip.std.GPUUpload().set_output()\n");
  std::size_t before = 0, after = 0;
  {
    const Clip clip = on_card(open(script));
    FrameStream stream(clip, first_frames(clip, 800), {.in_flight = 16});
    const auto read = [&](int count) {
      for (int i = 0; i < count; ++i) ASSERT_NE(device_picture(stream.next().value()), nullptr);
    };
    read(200);
    before = open_descriptors();
    const auto start = std::chrono::steady_clock::now();
    read(500);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    after = open_descriptors();
    RecordProperty("frames_per_second", static_cast<int>(500 / seconds.count()));
    read(100);
  }
  // Frames in flight have a few open; a descriptor lost with each frame would be 500 more.
  EXPECT_LE(after, before + 50) << "open file descriptors after 200 and 700 frames; " << text(target().counts());
  EXPECT_LE(target().counts().imports, 32) << text(target().counts());
  EXPECT_GE(target().counts().frames, 800) << text(target().counts());
  EXPECT_EQ(target().counts().open_imports, 0) << "the clip has gone: " << text(target().counts());
  EXPECT_EQ(target().counts().open_semaphores, 0) << "the clip has gone: " << text(target().counts());
  EXPECT_EQ(target().counts().unread, 0) << "the clip has gone: " << text(target().counts());
}

TEST_F(GpuPlaneImportTest, StreamsThatEndEarlyLeaveNothing) {
  const Clip clip = on_card(open(folder_.write("numbered.vpy", kNumbered)));
  for (int i = 0; i < 20; ++i) {
    FrameStream stream(clip, i, 60, {.in_flight = 6});
    for (int n = 0; n < 3; ++n) ASSERT_EQ(stream.next().value().number(), i + n);
  }
  EXPECT_EQ(clip.impl().pictures->size(), 0u);
}

TEST_F(GpuPlaneImportTest, PicturesOutliveEverythingElse) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  std::vector<std::shared_ptr<const DevicePicture>> pictures;
  {
    FrameStream stream(on_card(open(script)), 0, 30);
    while (const auto frame = stream.next()) pictures.push_back(device_picture(*frame));
  }
  const Clip host = open_host(script);
  for (std::size_t n = 0; n < pictures.size(); ++n) {
    EXPECT_EQ(difference(*pictures[n], host.frame(static_cast<std::int64_t>(n)).view()), "") << "frame " << n;
  }
}

// A picture is dropped as soon as work that reads it is queued, so that its memory is soon asked for by the next.
TEST_F(GpuPlaneImportTest, AnotherStreamMayReadAPictureThatHasGone) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  const Clip clip = on_card(open(script)), host = open_host(script);
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  const torch::Tensor work = torch::rand({2048, 2048}, torch::kCUDA);
  torch::cuda::synchronize();
  std::vector<torch::Tensor> copies;
  FrameStream stream(clip, 0, 100);
  while (const auto frame = stream.next()) {
    const auto picture = device_picture(*frame);
    const c10::cuda::CUDAStreamGuard guard(side);
    work.matmul(work);  // so that the copy below runs late
    picture->wait_on(side);
    copies.push_back(picture->block().clone());
  }
  side.synchronize();
  for (std::size_t n = 0; n < copies.size(); ++n) {
    const auto number = static_cast<std::int64_t>(n);
    const DevicePicture copy(clip.info().format, clip.info().width, clip.info().height, copies[n],
                             std::shared_ptr<CUevent_st>());
    EXPECT_EQ(difference(copy, host.frame(number).view()), "") << "frame " << n;
  }
}

TEST_F(GpuPlaneImportTest, AFailingFrameSaysSoInItsPlace) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  const Clip clip = on_card(open(script, 0, {{"broken", "yes"}}));
  FrameStream stream(clip, {58, 60, 61}, {.in_flight = 3});
  EXPECT_EQ(stream.next().value().number(), 58);
  try {
    stream.next();
    ADD_FAILURE() << "frame 60 came";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("numbered.vpy, output 0: frame 60: "));
    EXPECT_THAT(error.what(), HasSubstr("the tape is torn"));
  }
  EXPECT_EQ(stream.next().value().number(), 61);
}

TEST_F(GpuPlaneImportTest, HostFramesAndResizedClipsAreToBeHadToo) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  const Clip clip = open(script), host = open_host(script), read = on_card(clip);
  const auto planes = [](const Frame& frame) {
    const FrameView view = frame.view();
    return std::string(reinterpret_cast<const char*>(view.planes[0].data), view.width);
  };
  EXPECT_EQ(planes(clip.frame(7)), planes(host.frame(7)));
  EXPECT_EQ(planes(read.bicubic(160, 90).frame(7)), planes(host.bicubic(160, 90).frame(7)));
  expect_equal(read.frame(7), host.frame(7));
}

class OtherCard : public GpuFrameTarget {
 public:
  CardId card() const override { return CardId{1, 2, 3}; }
  std::unique_ptr<GpuFrameReader> open_reader() const override { throw std::logic_error("not to be opened"); }
  std::unique_ptr<GpuFrameWriter> open_writer() const override { throw std::logic_error("not to be opened"); }
};

class FailingTarget : public OtherCard {
 public:
  CardId card() const override { return card_of(torch::kCUDA).value(); }
  std::unique_ptr<GpuFrameReader> open_reader() const override {
    class Reader : public GpuFrameReader {
      std::shared_ptr<const GpuPicture> read(GpuFrame) override { fail("no memory for pictures"); }
    };
    return std::make_unique<Reader>();
  }
};

TEST_F(GpuPlaneImportTest, WhereTheyCannotBeReadFramesComeThroughHostMemory) {
  const auto script = folder_.write("numbered.vpy", kNumbered);
  const Clip clip = open(script), host = open_host(script);
  const std::pair<Clip, const char*> cases[] = {{clip.on_gpu(OtherCard()), "wanted on GPU-01020300-"},
                                                {clip.on_gpu(FailingTarget()), "no memory for pictures"}};
  const std::size_t before = open_descriptors();
  for (const auto& [fallback, why] : cases) {
    EXPECT_FALSE(fallback.frame_path().gpu);
    EXPECT_THAT(fallback.frame_path().why, HasSubstr(why));
    const Frame frame = fallback.frame(9);
    ASSERT_EQ(device_picture(frame), nullptr);
    EXPECT_EQ(std::memcmp(frame.view().planes[0].data, host.frame(9).view().planes[0].data, 320), 0);
  }
  for (int i = 0; i < 5; ++i) clip.on_gpu(FailingTarget());
  EXPECT_LE(open_descriptors(), before + 4) << "descriptors that no reader took are closed";
}

}  // namespace
}  // namespace reelgrad
