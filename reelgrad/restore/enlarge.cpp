#include "reelgrad/restore/enlarge.h"

#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/frames/convert.h"

namespace reelgrad {
namespace {

constexpr std::int64_t kReach = 2;  // of the filter, in samples
constexpr ColorSpec kAlphaRange{.full_range = true};

torch::Tensor mirrored(const torch::Tensor& x, std::int64_t dim) {
  torch::Tensor wide = x;
  for (std::int64_t added = 0; added < kReach;) {
    // Of a single sample, one at a time.
    const std::int64_t step = std::min(kReach - added, x.size(dim));
    wide = at::cat({wide.narrow(dim, 0, step).flip(dim), wide, wide.narrow(dim, wide.size(dim) - step, step).flip(dim)},
                   dim);
    added += step;
  }
  return wide;
}

}  // namespace

torch::Tensor enlarge_bicubic(const torch::Tensor& pictures, int scale) {
  if (scale == 1) return pictures;
  const std::int64_t height = pictures.size(2), width = pictures.size(3);
  const torch::Tensor wide = mirrored(mirrored(pictures.to(torch::kFloat32), 2), 3);
  // The antialiasing one has the filter with a = -1/2; upwards it widens nothing.
  const torch::Tensor large = at::_upsample_bicubic2d_aa(
      wide, {(height + 2 * kReach) * scale, (width + 2 * kReach) * scale}, /*align_corners=*/false);
  return large.narrow(2, kReach * scale, height * scale).narrow(3, kReach * scale, width * scale).to(pictures.dtype());
}

void enlarge_plane(const FrameView& from, const MutableFrameView& out) {
  TORCH_CHECK(from.width > 0 && out.width % from.width == 0 && out.width / from.width * from.height == out.height,
              "enlarge: the output is no whole multiple of the input");
  const torch::NoGradGuard no_grad;
  const torch::Tensor plane = to_tensor(from, kAlphaRange, NetworkColor::gray, torch::kCPU);
  const torch::Tensor large = enlarge_bicubic(plane.unsqueeze(0), out.width / from.width)[0];
  to_picture(large, NetworkColor::gray, kAlphaRange, out);
}

}  // namespace reelgrad
