#include "reelgrad/train/ldl_loss.h"

#include <torch/torch.h>

#include "reelgrad/config/config.h"

namespace reelgrad {
namespace {

constexpr int kMargin = kLdlWindow / 2;
// Below it the fifth root's slope is without bound: pictures that are right get no gradient from there.
constexpr double kLeastVariance = 1e-30;

// torch's own gradient of a reflection on a card adds in any order.
torch::Tensor reflected(const torch::Tensor& x, std::int64_t dim) {
  const std::int64_t size = x.size(dim);
  return at::cat({x.narrow(dim, 1, kMargin).flip(dim), x, x.narrow(dim, size - 1 - kMargin, kMargin).flip(dim)}, dim);
}

torch::Tensor residual(const torch::Tensor& d) {
  return d.abs().sum(1, /*keepdim=*/true);
}

}  // namespace

LdlLoss::LdlLoss() : window_(std::vector<double>(kLdlWindow, 1.0 / kLdlWindow)) {}

// In float64: the mean square less the squared mean loses the digits of what is nearly even.
torch::Tensor LdlLoss::local_variance(const torch::Tensor& r) const {
  constexpr double kCount = kLdlWindow * kLdlWindow;
  const torch::Tensor x = reflected(reflected(r.to(torch::kFloat64), 2), 3);
  const torch::Tensor window = window_.like(x);
  const auto mean = [&](const torch::Tensor& of) { return filter_lines(filter_lines(of, window, 2), window, 3); };
  return ((mean(x.square()) - mean(x).square()) * (kCount / (kCount - 1))).to(r.scalar_type());
}

torch::Tensor LdlLoss::operator()(const torch::Tensor& d, const torch::Tensor& of_average) const {
  const torch::Tensor r = residual(d);
  const torch::Tensor of_picture = r.var(c10::IntArrayRef{1, 2, 3}, /*unbiased=*/true, /*keepdim=*/true);
  torch::Tensor map = of_picture.clamp_min(kLeastVariance).pow(0.2) * local_variance(r);
  if (of_average.defined()) map = map.masked_fill(r.detach() < residual(of_average.detach()), 0);
  return (map * d).abs().mean();
}

}  // namespace reelgrad
