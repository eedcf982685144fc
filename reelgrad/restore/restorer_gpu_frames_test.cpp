// Clips whose frames VapourSynth makes on the card give the very pictures and scores that they give through host
// memory. Every test needs a card, and VapourSynth to be able to use it: otherwise it is skipped with the reason.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/clip/noise_script.h"
#include "reelgrad/clip/window_reader.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/restore/test_networks.h"
#include "reelgrad/restore/validation.h"

namespace reelgrad {
namespace {

// Outputs 0 and 1 are a pair, the others of several formats; behind kNoiseScript.
constexpr const char* kNoiseClips = R"(
noisy(144, 80, vs.YUV420P8, 7).set_output(0)
for index, format in enumerate([vs.YUV420P8, vs.YUV422P10, vs.YUV444P16, vs.GRAY8, vs.GRAYS, vs.RGB24, vs.RGBH], 1):
    noisy(72, 40, format, 7).set_output(index)
)";

// The mean of the window's frames: each of them counts.
class MeanOfFrames : public Network {
 public:
  MeanOfFrames() {
    register_parameter("unused", torch::zeros({1}));
    info_.in_channels = info_.out_channels = 3;
    info_.window = 5;
  }
  torch::Tensor forward(torch::Tensor input) override { return input.mean(1); }
  NetworkInfo info() const override { return info_; }

 private:
  NetworkInfo info_;
};

NetworkSpec small_compact() {
  NetworkSpec spec;
  spec.options = {{"features", "8"}, {"convs", "2"}};
  return spec;
}

std::shared_ptr<Network> seeded_small_compact() {
  torch::manual_seed(4);
  return make_network(small_compact());
}

class RestorerGpuFramesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card on this machine";
    const auto probe = folder_.write("probe.vpy",
                                     "import vapoursynth as vs\nclip = vs.core.std.BlankClip()\n"
                                     "clip.std.GPUUpload().set_output()");
    try {
      const Clip clip = Script::open(probe, {.card = card_of(torch::kCUDA)}).output(0).value();
      if (!clip.frame_path().gpu) GTEST_SKIP() << clip.frame_path().why;
    } catch (const std::exception& error) {
      GTEST_SKIP() << error.what();
    }
    const auto script = folder_.write("noise.vpy", std::string(test::kNoiseScript) + kNoiseClips);
    host_.emplace(Script::open(script));
    card_.emplace(Script::open(script, {.args = {{"card", "yes"}}, .card = card_of(torch::kCUDA)}));
    target_ = frame_target(torch::kCUDA);
  }

  Clip on_host(int index) const { return host_->output(index).value(); }
  Clip on_card(int index) const {
    const Clip clip = card_->output(index)->on_gpu(*target_);
    EXPECT_TRUE(clip.frame_path().gpu) << clip.describe_frame_path();
    return clip;
  }

  static Restorer restorer(std::shared_ptr<Network> network, torch::Device device,
                           NetworkColor color = NetworkColor::rgb) {
    NetworkSpec spec = small_compact();
    spec.color = color;
    RestoreOptions options;
    options.device = device;
    return Restorer(std::move(network), spec, options);
  }

  // All restored frames of a clip, their planes one after the other.
  static std::string restored(Restorer& restorer, const Clip& clip, bool frames_on_card) {
    const ClipInfo& info = clip.info();
    const int scale = restorer.info().scale;
    WindowReader windows(clip, {0, info.frames}, restorer.info().window);
    std::string bytes;
    for (std::int64_t n = 0; n < info.frames; ++n) {
      const std::vector<FrameView> window = windows.next();
      EXPECT_EQ(window[0].gpu != nullptr, frames_on_card) << clip.name();
      OwnedPicture out(info.format, info.width * scale, info.height * scale, window[0].color);
      restorer.restore(window, clip.name(), n, out.mutable_view());
      bytes.append(reinterpret_cast<const char*>(out.view().planes[0].data), out.size_bytes());
    }
    return bytes;
  }

  void expect_alike(Restorer restorer, int index) const {
    SCOPED_TRACE(fmt::format("{} on {}", on_host(index).info().format.name(), restorer.device().str()));
    const std::string host = restored(restorer, on_host(index), false);
    EXPECT_TRUE(restored(restorer, on_card(index), true) == host);
  }

  test::TemporaryFolder folder_;
  std::optional<Script> host_, card_;
  std::unique_ptr<CudaFrameTarget> target_;
};

TEST_F(RestorerGpuFramesTest, EveryFormatIsRestoredTheSameBitForBit) {
  for (const int index : host_->outputs()) expect_alike(restorer(seeded_small_compact(), torch::kCUDA), index);
}

TEST_F(RestorerGpuFramesTest, WindowsAreTheSame) {
  for (const int index : {1, 6}) expect_alike(restorer(std::make_shared<MeanOfFrames>(), torch::kCUDA), index);
}

TEST_F(RestorerGpuFramesTest, GrayNetworksKeepAndEnlargeChromaAlike) {
  for (const int scale : {1, 2}) {
    for (const int index : {1, 2, 6}) {
      expect_alike(restorer(std::make_shared<Enlarger>(scale, 1), torch::kCUDA, NetworkColor::gray), index);
    }
  }
}

TEST_F(RestorerGpuFramesTest, ANetworkOnTheCpuTakesThemToo) {
  for (const int index : {1, 5, 7}) expect_alike(restorer(seeded_small_compact(), torch::kCPU), index);
}

TEST_F(RestorerGpuFramesTest, WholePicturesBecomeTheSameTensors) {
  const ColorSpec color{6, false, 0};
  for (const torch::Device device : {torch::Device(torch::kCPU), torch::Device(torch::kCUDA, 0)}) {
    const Frame host = on_host(2).frame(3), card = on_card(2).frame(3);
    EXPECT_TRUE(torch::equal(to_tensor(card.view(), color, NetworkColor::rgb, device),
                             to_tensor(host.view(), color, NetworkColor::rgb, device)))
        << device.str();
  }
}

TEST_F(RestorerGpuFramesTest, ScoresAreTheSame) {
  Restorer ours = restorer(seeded_small_compact(), torch::kCUDA);
  const ClipPair host = training_pair(*host_, 2), card = training_pair(*card_, 2).on_gpu(*target_);
  EXPECT_TRUE(card.target.frame_path().gpu && card.input.frame_path().gpu);
  const ClipScores expected = measure(ours, {{"host", host, 1, 6}}, {}).front();
  const ClipScores scores = measure(ours, {{"card", card, 1, 6}}, {}).front();
  EXPECT_EQ(scores.ours.psnr_rgb, expected.ours.psnr_rgb);
  EXPECT_EQ(scores.ours.ssim_y, expected.ours.ssim_y);
  EXPECT_EQ(scores.bicubic.psnr_rgb, expected.bicubic.psnr_rgb);
  EXPECT_TRUE(
      torch::equal(comparison(ours, {"card", card, 1, 6}, 2, {}), comparison(ours, {"host", host, 1, 6}, 2, {})));
}

}  // namespace
}  // namespace reelgrad
