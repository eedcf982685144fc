#include "reelgrad/data/content_reader.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <array>
#include <cstring>
#include <vector>

#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/gpu_plane_import.h"

namespace reelgrad {
namespace {

enum Side { kTarget, kInput };

SceneProps scene_props(const Frame& frame) {
  return {frame.begins_scene(), frame.ends_scene()};
}

bool alike(const FrameView& a, const FrameView& b) {
  return a.format == b.format && a.width == b.width && a.height == b.height;
}

// What is asked of frames that lie on the card; the answers come all at once.
class CardQuestions {
 public:
  CardQuestions(int frames, torch::Device device)
      : stream_(c10::cuda::getStreamFromPool(false, device.index())), frames_(frames) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    const auto on_card = torch::TensorOptions().device(device);
    summaries_ =
        torch::zeros({frames, static_cast<std::int64_t>(sizeof(PictureSummary))}, on_card.dtype(torch::kUInt8));
    differs_ = torch::zeros({2, frames}, on_card.dtype(torch::kInt32));
  }

  void summarize(int frame, const DevicePicture& picture) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    picture.wait_on(stream_);
    auto* summaries = static_cast<PictureSummary*>(summaries_.mutable_data_ptr());
    cuda::summarize(picture.format(), picture.ref(), summaries + frame, stream_.stream());
  }

  void compare(Side side, int frame, const DevicePicture& before, const DevicePicture& picture) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    before.wait_on(stream_);
    picture.wait_on(stream_);
    auto* differs = static_cast<std::uint32_t*>(differs_.mutable_data_ptr());
    cuda::compare(picture.format(), before.ref(), picture.ref(), differs + side * frames_ + frame, stream_.stream());
  }

  void fetch_answers() {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    summaries_ = summaries_.cpu();
    differs_ = differs_.cpu();
  }

  void read_summary(int frame, PictureSummary& summary) const {
    std::memcpy(&summary, static_cast<const PictureSummary*>(summaries_.const_data_ptr()) + frame, sizeof summary);
  }
  bool differs(int frame) const {
    const auto* differs = differs_.const_data_ptr<int>();
    return differs[kTarget * frames_ + frame] != 0 || differs[kInput * frames_ + frame] != 0;
  }

 private:
  c10::cuda::CUDAStream stream_;
  int frames_;
  torch::Tensor summaries_;  // uint8 [frames, sizeof(PictureSummary)]
  torch::Tensor differs_;    // int32 [2, frames], of the target and the input
};

}  // namespace

struct ContentReader::Impl {
  int frames;
  ContentOptions options;
  torch::Device device;
  std::vector<FrameContent> contents;
  std::array<Frame, 2> before;  // target, input
  std::unique_ptr<CardQuestions> card;
  std::vector<int> summarized_on_card;

  CardQuestions& ask_card() {
    if (!card) card = std::make_unique<CardQuestions>(frames, device);
    return *card;
  }

  void summarize(int frame, const Frame& input) {
    if (const auto picture = device_picture(input)) {
      ask_card().summarize(frame, *picture);
      summarized_on_card.push_back(frame);
      return;
    }
    const FrameView view = input.view();
    contents.back().summary = cpu::summarize(view.format, picture_ref(view));
  }

  // True, where both lie on the card, until the card has answered.
  bool repeats(Side side, int frame, const Frame& now) {
    const FrameView a = before[side].view(), b = now.view();
    if (!alike(a, b)) return false;
    const auto picture = device_picture(now), last = device_picture(before[side]);
    if (!picture && !last) return cpu::same_picture(b.format, picture_ref(a), picture_ref(b));
    if (!picture || !last) return false;
    ask_card().compare(side, frame, *last, *picture);
    return true;
  }
};

ContentReader::ContentReader(int frames, const ContentOptions& options, torch::Device device)
    : impl_(std::make_unique<Impl>(Impl{.frames = frames, .options = options, .device = device})) {}

ContentReader::~ContentReader() = default;

void ContentReader::add(const Frame& target, const Frame& input) {
  Impl& my = *impl_;
  const int frame = static_cast<int>(my.contents.size());
  FrameContent& content = my.contents.emplace_back();
  content.scene = either_of(scene_props(target), scene_props(input));
  if (my.options.scene_cuts == SceneCuts::automatic) my.summarize(frame, input);
  if (my.options.skip_duplicates && frame > 0) {
    content.repeats = my.repeats(kTarget, frame, target) && my.repeats(kInput, frame, input);
  }
  my.before = {target, input};
}

SegmentContent ContentReader::content() {
  Impl& my = *impl_;
  if (my.card) {
    my.card->fetch_answers();
    for (const int frame : my.summarized_on_card) my.card->read_summary(frame, my.contents[frame].summary);
    for (int frame = 0; frame < static_cast<int>(my.contents.size()); ++frame) {
      if (my.card->differs(frame)) my.contents[static_cast<std::size_t>(frame)].repeats = false;
    }
  }
  return segment_content(my.contents, my.options.scene_cuts);
}

}  // namespace reelgrad
