// Frames in a card's memory as far as a machine without a card can show it; the rest is in frames/.
#include "reelgrad/clip/gpu_frames.h"

#include <gmock/gmock.h>

#include <fstream>

#include "reelgrad/base/log.h"
#include "reelgrad/clip/clip_test_util.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/clip/gpu_sink.h"

namespace reelgrad {
namespace {

using test::output;
using test::ScriptFolder;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Nobody's.
constexpr CardId kCard{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};

class NoCard : public GpuFrameTarget {
 public:
  CardId card() const override { return kCard; }
  std::unique_ptr<GpuFrameReader> open_reader() const override {
    ADD_FAILURE() << "a reader was opened for a card that is not there";
    return nullptr;
  }
  std::unique_ptr<GpuFrameWriter> open_writer() const override {
    ADD_FAILURE() << "a writer was opened for a card that is not there";
    return nullptr;
  }
};

// Which depends on the machine: no Vulkan 1.4, no device, or other devices.
const auto kSaysWhatVulkanLacks = AnyOf(HasSubstr("Vulkan cannot be used: "), HasSubstr("Vulkan finds no device"),
                                        HasSubstr("Vulkan does not find the card GPU-00112233-"));

TEST(CardIdText, IsNvidias) {
  EXPECT_EQ(card_text(kCard), "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(parse_card(card_text(kCard)), kCard);
  EXPECT_EQ(parse_card("MIG-00112233-4455-6677-8899-AABBCCDDEEFF"), kCard);
  for (const char* text : {"", "GPU-", "00112233-4455-6677-8899-aabbccddeeff",
                           "GPU-00112233-4455-6677-8899-aabbccddeef", "GPU-00112233-4455-6677-8899-aabbccddeegg"}) {
    EXPECT_EQ(parse_card(text), std::nullopt) << text;
  }
}

TEST(PicturesOnTheirWay, AreTakenOnce) {
  class Picture : public GpuPicture {};
  PicturesInTransit pictures;
  const auto first = std::make_shared<Picture>(), second = std::make_shared<Picture>();
  const std::int64_t first_ticket = pictures.leave(first), second_ticket = pictures.leave(second);
  EXPECT_EQ(pictures.take(second_ticket), second);
  EXPECT_EQ(pictures.take(second_ticket), nullptr);
  EXPECT_EQ(pictures.size(), 1u);
  EXPECT_EQ(pictures.take(first_ticket), first);
  EXPECT_EQ(pictures.take(0), nullptr);
}

class FramesWithoutACard : public testing::Test {
 protected:
  FramesWithoutACard() {
    log::set_sink([this](log::Level, std::string_view message) { log_.emplace_back(message); });
  }
  ~FramesWithoutACard() override { log::set_sink(nullptr); }

  // The same frames, through host memory, with and without asking for a card.
  void expect_host_frames(const std::filesystem::path& path, int count) {
    const Clip plain = output(path);
    log_.clear();
    const Clip clip = output(path, 0, {.card = kCard});
    const Clip on_card = clip.on_gpu(NoCard());
    EXPECT_FALSE(on_card.frame_path().gpu);
    EXPECT_THAT(on_card.frame_path().why, kSaysWhatVulkanLacks);
    EXPECT_THAT(log_, testing::Contains(
                          AllOf(HasSubstr(clip.name() + ": frames come through host memory: "), kSaysWhatVulkanLacks))
                          .Times(1));
    EXPECT_EQ(on_card.info().format, plain.info().format);
    FrameStream stream(on_card, 0, count);
    for (int n = 0; n < count; ++n) {
      const Frame frame = stream.next().value();
      EXPECT_EQ(frame.gpu_picture(), nullptr);
      EXPECT_EQ(test::packed(frame.view()), test::packed(plain.frame(n).view())) << n;
    }
  }

  ScriptFolder folder_;
  std::vector<std::string> log_;
};

TEST_F(FramesWithoutACard, ComeThroughHostMemoryAndSayWhy) {
  expect_host_frames(
      folder_.script("s.vpy", "core.std.BlankClip(width=34, height=6, format=vs.YUV420P10, length=3).set_output()\n"),
      3);
}

TEST_F(FramesWithoutACard, OfVideoFilesToo) {
  test::ffmpeg({"-f", "lavfi", "-i", "testsrc2=size=64x48:rate=24:duration=0.5", "-pix_fmt", "yuv420p",
                (folder_ / "v.mkv").string()});
  expect_host_frames(folder_ / "v.mkv", 5);
}

TEST_F(FramesWithoutACard, WereNotAskedFor) {
  const auto script = folder_.script("s.vpy", "core.std.BlankClip(width=64, height=48).set_output()\n");
  const Clip clip = output(script).on_gpu(NoCard());
  EXPECT_FALSE(clip.frame_path().gpu);
  EXPECT_THAT(clip.frame_path().why, HasSubstr("not asked for"));
  EXPECT_THAT(log_, testing::IsEmpty());
}

TEST_F(FramesWithoutACard, ResizedClipsAreAsBefore) {
  const auto script = folder_.script("s.vpy", "core.std.BlankClip(width=64, height=48).set_output()\n");
  const Clip clip = output(script, 0, {.card = kCard}).on_gpu(NoCard()).bicubic(32, 24);
  EXPECT_EQ(clip.info().width, 32);
  EXPECT_EQ(clip.frame(0).view().width, 32);
}

}  // namespace
}  // namespace reelgrad
