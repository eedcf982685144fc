#include "reelgrad/train/pixel_loss.h"

#include <ATen/ops/huber_loss.h>
#include <fmt/format.h>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

constexpr int kBt709 = 1;

// Linear and without an offset: a difference stays one.
torch::Tensor rgb_to_ycbcr(const torch::Tensor& rgb) {
  const auto [kr, kb] = luma_weights(kBt709);
  const std::vector<torch::Tensor> planes = rgb.unbind(1);
  const torch::Tensor y = kr * planes[0] + (1 - kr - kb) * planes[1] + kb * planes[2];
  return torch::stack({y, (planes[2] - y) / (2 * (1 - kb)), (planes[0] - y) / (2 * (1 - kr))}, 1);
}

}  // namespace

PlaneWeights::PlaneWeights(const LossConfig& config, NetworkColor color)
    : plain_(config.luma_weight == 1 && config.chroma_weight == 1),
      convert_(!plain_ && color == NetworkColor::rgb),
      luma_(config.luma_weight),
      chroma_(config.chroma_weight) {
  if (plain_ || color != NetworkColor::gray) return;
  fail_usage(
      fmt::format("loss.luma_weight = {} and loss.chroma_weight = {}: data.color = \"gray\" has no chroma to "
                  "weigh luma against, allowed with it: 1",
                  luma_, chroma_));
}

torch::Tensor PlaneWeights::seen(const torch::Tensor& difference) const {
  return convert_ ? rgb_to_ycbcr(difference) : difference;
}

torch::Tensor PlaneWeights::mean(const torch::Tensor& map) const {
  if (plain_) return map.mean();
  const torch::Tensor planes = map.mean({0, 2, 3});  // [3]
  return (luma_ * planes[0] + chroma_ * (planes[1] + planes[2])) / 3;
}

torch::Tensor chroma_of_difference(const torch::Tensor& difference, NetworkColor color) {
  return (color == NetworkColor::rgb ? rgb_to_ycbcr(difference) : difference).narrow(1, 1, 2);
}

torch::Tensor charbonnier(const torch::Tensor& d, double eps) {
  return (d.square() + eps * eps).sqrt();
}

torch::Tensor huber(const torch::Tensor& d, double delta) {
  return at::huber_loss(d, d.new_zeros({}).expand_as(d), at::Reduction::None, delta);
}

}  // namespace reelgrad
