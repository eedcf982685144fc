#include "reelgrad/restore/validation.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/utils.h>

#include <algorithm>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/clip/interlaced.h"
#include "reelgrad/clip/window_reader.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/restore/metrics.h"
#include "reelgrad/train/replay_state.h"

namespace reelgrad {
namespace {

// How the samples of a pair are read: both sides alike, as in training (data/script_pool.cpp), so that a missing matrix
// is not guessed as one thing for the small picture and another for the large one.
class PairColor {
 public:
  PairColor(const ClipPair& pair, int scale, const ColorOverrides& overrides, torch::Device device)
      : height_(pair.target ? pair.target.info().height : pair.input.info().height * scale),
        overrides_(overrides),
        device_(device) {}

  // A frame as what scores are taken from and people look at: RGB, or gray for a gray clip; on the device, or on the
  // CPU where the device's memory does not suffice.
  torch::Tensor displayed(const FrameView& view, const std::string& name, std::int64_t frame) const {
    const NetworkColor color = view.format.family == ColorFamily::gray ? NetworkColor::gray : NetworkColor::rgb;
    const ColorSpec from = spec(view, name, frame);
    try {
      return to_tensor(view, from, color, device_);
    } catch (const c10::OutOfMemoryError&) {
      if (device_.is_cpu()) throw;
    }
    return to_tensor(view, from, color, torch::kCPU);
  }
  torch::Tensor displayed(const Frame& frame, const std::string& name) const {
    return displayed(frame.view(), name, frame.number());
  }

  // The view with its matrix settled, for the restorer, which knows the input alone.
  FrameView settled(FrameView view, const std::string& name, std::int64_t frame) const {
    view.color.matrix = spec(view, name, frame).matrix;
    return view;
  }

 private:
  ColorSpec spec(const FrameView& view, const std::string& name, std::int64_t frame) const {
    return resolve_color(view.format, view.color, height_, overrides_, name, frame);
  }

  int height_;
  const ColorOverrides& overrides_;
  torch::Device device_;
};

// A gray picture and a colour one are compared in colour.
torch::Tensor with_channels(const torch::Tensor& picture, std::int64_t channels) {
  return picture.size(0) == channels ? picture : picture.expand({channels, -1, -1});
}

// On the device that both are on, or where its memory does not suffice on the CPU: measuring never ends a run.
QualityScores score(const torch::Tensor& picture, const torch::Tensor& target, FeatureMeasures* features) {
  const auto measured = [&](const torch::Tensor& a, const torch::Tensor& b) {
    QualityScores scores = quality(a, b);
    if (features != nullptr) features->measure(a, b, scores);
    return scores;
  };
  const std::int64_t channels = std::max(picture.size(0), target.size(0));
  const torch::Tensor a = with_channels(picture, channels), b = with_channels(target, channels);
  if (a.device() == b.device()) {
    try {
      return measured(a, b);
    } catch (const c10::OutOfMemoryError&) {
      if (a.is_cpu()) throw;
    }
  }
  c10::cuda::CUDACachingAllocator::emptyCache();
  return measured(a.cpu(), b.cpu());
}

// What a user would get: the restored frame at the target's depth and subsampling (the input's own where the families
// differ), read back. So the network is not favoured over bicubic by a rounding it was spared.
torch::Tensor restored_frame(Restorer& restorer, std::vector<FrameView> window, const ClipPair& pair,
                             std::int64_t frame, const PairColor& color) {
  const std::string& name = pair.input.name();
  for (FrameView& view : window) view = color.settled(view, name, frame);
  const FrameView& middle = window[window.size() / 2];
  VideoFormat format = middle.format;
  if (pair.target && pair.target.info().format.family == format.family) format = pair.target.info().format;
  const int scale = restorer.info().scale;
  OwnedPicture picture(format, middle.width * scale, middle.height * scale, middle.color);
  restorer.restore(window, name, frame, picture.mutable_view());
  return color.displayed(picture.view(), name, frame);
}

Frame next_frame(FrameStream& stream) {
  std::optional<Frame> frame = stream.next();
  if (!frame) fail("a validation clip ended early");
  return *std::move(frame);
}

Clip bicubic_of(const ClipPair& pair, int scale) {
  const ClipInfo& info = pair.input.info();
  return pair.input.bicubic(info.width * scale, info.height * scale);
}

void add(std::optional<double>& sum, const std::optional<double>& value) {
  if (value) sum = sum.value_or(0) + *value;
}

void add(QualityScores& sum, const QualityScores& scores) {
  add(sum.lpips, scores.lpips);
  add(sum.dists, scores.dists);
  sum.psnr_rgb += scores.psnr_rgb;
  sum.psnr_y += scores.psnr_y;
  sum.ssim_rgb += scores.ssim_rgb;
  sum.ssim_y += scores.ssim_y;
}

QualityScores scaled(QualityScores scores, double factor) {
  if (scores.lpips) *scores.lpips *= factor;
  if (scores.dists) *scores.dists *= factor;
  scores.psnr_rgb *= factor;
  scores.psnr_y *= factor;
  scores.ssim_rgb *= factor;
  scores.ssim_y *= factor;
  return scores;
}

using OnFrame = std::function<void()>;  // after each frame; may throw

[[noreturn]] void fail_interrupted() {
  throw Error(ErrorKind::interrupted, "interrupted");
}

QualityScores measure_network(Restorer& restorer, const ValidationClip& clip, const ColorOverrides& overrides,
                              FeatureMeasures* features, const OnFrame& on_frame) {
  const PairColor color(clip.pair, restorer.info().scale, overrides, restorer.device());
  WindowReader windows(clip.pair.input, {clip.begin, clip.end}, restorer.info().window);
  FrameStream targets(clip.pair.target, clip.begin, clip.end - clip.begin);
  QualityScores sum;
  for (std::int64_t n = clip.begin; n < clip.end; ++n) {
    const std::vector<FrameView> window = windows.next();
    warn_if_interlaced(clip.pair.input, windows.middle());
    const torch::Tensor ours = restored_frame(restorer, window, clip.pair, n, color);
    add(sum, score(ours, color.displayed(next_frame(targets), clip.pair.target.name()), features));
    on_frame();
  }
  return scaled(sum, 1.0 / static_cast<double>(clip.end - clip.begin));
}

QualityScores measure_bicubic(const Restorer& restorer, const ValidationClip& clip, const ColorOverrides& overrides,
                              FeatureMeasures* features, const OnFrame& on_frame) {
  const int scale = restorer.info().scale;
  const PairColor color(clip.pair, scale, overrides, restorer.device());
  FrameStream pictures(bicubic_of(clip.pair, scale), clip.begin, clip.end - clip.begin);
  FrameStream targets(clip.pair.target, clip.begin, clip.end - clip.begin);
  QualityScores sum;
  for (std::int64_t n = clip.begin; n < clip.end; ++n) {
    const torch::Tensor picture = color.displayed(next_frame(pictures), clip.pair.input.name());
    add(sum, score(picture, color.displayed(next_frame(targets), clip.pair.target.name()), features));
    on_frame();
  }
  return scaled(sum, 1.0 / static_cast<double>(clip.end - clip.begin));
}

// Keeps the generators of the CPU and of a device as they were, whatever happens inside.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(torch::Device device = torch::kCPU) : state_(RandomState::now(device)) {}
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;
  ~GeneratorGuard() { state_.restore(); }

 private:
  RandomState state_;
};

std::shared_ptr<Network> scratch_network(const NetworkSpec& spec) {
  GeneratorGuard guard;  // initialising a network draws
  return make_network(spec);
}

class ClipValidator : public Validator {
 public:
  ClipValidator(std::vector<ValidationClip> clips, const NetworkSpec& spec, const ColorOverrides& overrides,
                torch::Device device, std::unique_ptr<FeatureMeasures> features)
      : clips_(std::move(clips)),
        overrides_(overrides),
        network_(scratch_network(spec)),
        features_(std::move(features)) {
    RestoreOptions options;
    options.device = device;
    options.precision = "fp32";
    options.overrides = overrides;
    options.overlap_px = RestoreOptions::kExact;  // a measured one would be measured again after each step
    options.streams = 1;
    options.capture = false;  // the weights change
    restorer_ = std::make_unique<Restorer>(network_, spec, options);
  }

  std::optional<ValidationRecord> validate(Network& network, std::int64_t step,
                                           const std::function<bool()>& stop_requested) override {
    try {
      return record(network, step, [&] {
        if (stop_requested && stop_requested()) fail_interrupted();
      });
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) return std::nullopt;
      throw;
    }
  }

 private:
  ValidationRecord record(Network& network, std::int64_t step, const OnFrame& on_frame) {
    const GeneratorGuard generators(restorer_->device());
    {
      torch::NoGradGuard no_grad;
      load_strict(*network_, state_dict(network), "the network in training");
      network_->eval();  // what it merges for that follows from the weights
    }
    for (std::size_t i = bicubic_.size(); i < clips_.size(); ++i) {
      bicubic_.push_back(measure_bicubic(*restorer_, clips_[i], overrides_, features_.get(), on_frame));
    }
    std::vector<ClipScores> scores;
    for (std::size_t i = 0; i < clips_.size(); ++i) {
      scores.push_back({clips_[i].name, clips_[i].end - clips_[i].begin,
                        measure_network(*restorer_, clips_[i], overrides_, features_.get(), on_frame), bicubic_[i]});
    }
    const ClipScores all = overall(scores);
    ValidationRecord record;
    record.step = step;
    record.frames = all.frames;
    record.ours = all.ours;
    record.bicubic = all.bicubic;
    if (scores.size() > 1) {
      for (const ClipScores& clip : scores) record.clips.push_back({clip.name, clip.frames, clip.ours, clip.bicubic});
    }
    record.preview =
        comparison(*restorer_, clips_.front(), (clips_.front().begin + clips_.front().end) / 2, overrides_);
    return record;
  }

  std::vector<ValidationClip> clips_;
  ColorOverrides overrides_;
  std::shared_ptr<Network> network_;  // the restorer's; its weights are replaced at each validation
  std::unique_ptr<Restorer> restorer_;
  std::unique_ptr<FeatureMeasures> features_;  // null: none
  std::vector<QualityScores> bicubic_;         // of each clip, once measured
};

}  // namespace

std::vector<ValidationClip> image_clips(const ImagePairs& images, FrameRange range) {
  std::vector<ValidationClip> clips;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const auto index = static_cast<std::size_t>(i);
    clips.push_back({images.list()[index].target.filename().string(), images.clips({index}), 0, 1});
  }
  return clips;
}

std::vector<ClipScores> measure(Restorer& restorer, const std::vector<ValidationClip>& clips,
                                const ColorOverrides& overrides,
                                const std::function<bool(std::int64_t done, std::int64_t total)>& on_frame) {
  std::int64_t done = 0, total = 0;
  for (const ValidationClip& clip : clips) total += 2 * (clip.end - clip.begin);
  const OnFrame count = [&] {
    if (on_frame && !on_frame(++done, total)) fail_interrupted();
  };
  std::vector<ClipScores> result;
  for (const ValidationClip& clip : clips) {
    ClipScores scores{clip.name, clip.end - clip.begin};
    scores.ours = measure_network(restorer, clip, overrides, nullptr, count);
    scores.bicubic = measure_bicubic(restorer, clip, overrides, nullptr, count);
    result.push_back(scores);
  }
  return result;
}

ClipScores overall(const std::vector<ClipScores>& clips) {
  ClipScores all;
  for (const ClipScores& clip : clips) {
    all.frames += clip.frames;
    add(all.ours, scaled(clip.ours, static_cast<double>(clip.frames)));
    add(all.bicubic, scaled(clip.bicubic, static_cast<double>(clip.frames)));
  }
  if (all.frames == 0) return all;
  all.ours = scaled(all.ours, 1.0 / static_cast<double>(all.frames));
  all.bicubic = scaled(all.bicubic, 1.0 / static_cast<double>(all.frames));
  return all;
}

torch::Tensor comparison(Restorer& restorer, const ValidationClip& clip, std::int64_t frame,
                         const ColorOverrides& overrides) {
  const int scale = restorer.info().scale;
  const PairColor color(clip.pair, scale, overrides, restorer.device());
  const std::string& name = clip.pair.input.name();
  WindowReader windows(clip.pair.input, {frame, frame + 1}, restorer.info().window);
  const std::vector<FrameView> window = windows.next();
  const torch::Tensor input = color.displayed(window[window.size() / 2], name, frame).unsqueeze(0);
  std::vector<torch::Tensor> pictures{at::upsample_nearest2d(input, {input.size(2) * scale, input.size(3) * scale})[0],
                                      color.displayed(bicubic_of(clip.pair, scale).frame(frame), name),
                                      restored_frame(restorer, window, clip.pair, frame, color)};
  if (clip.pair.target) {
    pictures.push_back(color.displayed(clip.pair.target.frame(frame), clip.pair.target.name()));
  }
  for (torch::Tensor& picture : pictures) picture = with_channels(picture, 3).cpu();
  return torch::cat(pictures, 2).clamp_(0, 1);
}

std::unique_ptr<Validator> make_validator(std::vector<ValidationClip> clips, const NetworkSpec& spec,
                                          const ColorOverrides& overrides, torch::Device device,
                                          std::unique_ptr<FeatureMeasures> features) {
  return std::make_unique<ClipValidator>(std::move(clips), spec, overrides, device, std::move(features));
}

}  // namespace reelgrad
