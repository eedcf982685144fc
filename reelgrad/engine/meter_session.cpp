#include "reelgrad/engine/meter_session.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/engine/guarded.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/restore/metrics.h"
#include "reelgrad/train/out_of_memory.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace {

// As people see it: RGB, or gray where both pictures are.
torch::Tensor displayed(const FrameView& view, NetworkColor color, torch::Device device) {
  const ColorSpec from = resolve_color(view.format, view.color, view.height, {}, "the clip", 0);
  return to_tensor(view, from, color, device);
}

QualityScores scores_of(const FrameView& a, const FrameView& b, torch::Device device) {
  const bool gray = a.format.family == ColorFamily::gray && b.format.family == ColorFamily::gray;
  const NetworkColor color = gray ? NetworkColor::gray : NetworkColor::rgb;
  return quality(displayed(a, color, device), displayed(b, color, device));
}

class Meter : public MeterSession {
 public:
  explicit Meter(torch::Device device) : device_(device) {}

  Status compare(const FrameView& a, const FrameView& b, QualityNumbers& result) override {
    return guarded([&] {
      if (a.width != b.width || a.height != b.height) {
        fail_usage(fmt::format("pictures of {}x{} and {}x{} cannot be compared: they must be of one size", a.width,
                               a.height, b.width, b.height));
      }
      const QualityScores scores = measure(a, b);
      result = {scores.psnr_rgb, scores.psnr_y, scores.ssim_rgb, scores.ssim_y};
    });
  }

 private:
  QualityScores measure(const FrameView& a, const FrameView& b) const {
    const c10::InferenceMode inference;
    if (device_.is_cuda()) {
      // A stream of its own: other threads compare meanwhile, and the default one waits for all.
      const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool(false, device_.index()));
      try {
        return scores_of(a, b, device_);
      } catch (const std::exception& error) {
        if (!is_out_of_memory(error, device_)) throw;
      }
    }
    return scores_of(a, b, torch::kCPU);
  }

  torch::Device device_;
};

}  // namespace

std::unique_ptr<MeterSession> open_meter_session(const std::string& device) {
  return std::make_unique<Meter>(resolve_device(device));
}

}  // namespace reelgrad
