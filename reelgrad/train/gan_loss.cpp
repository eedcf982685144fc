#include "reelgrad/train/gan_loss.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

torch::Tensor in_full(const torch::Tensor& logits) {
  const bool half = logits.scalar_type() == torch::kHalf || logits.scalar_type() == torch::kBFloat16;
  return half ? logits.to(torch::kFloat32) : logits;
}

torch::Tensor mean_over_scales(const std::vector<torch::Tensor>& real, const std::vector<torch::Tensor>& fake,
                               const std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>& part) {
  torch::Tensor sum;
  for (std::size_t i = 0; i < fake.size(); ++i) {
    const torch::Tensor one = part(real.empty() ? torch::Tensor() : in_full(real[i]), in_full(fake[i]));
    sum = sum.defined() ? sum + one : one;
  }
  return fake.size() == 1 ? sum : sum / static_cast<double>(fake.size());
}

}  // namespace

GanKind parse_gan_kind(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, GanKind>, 5> kKinds{{
      {"vanilla", GanKind::vanilla},
      {"lsgan", GanKind::lsgan},
      {"hinge", GanKind::hinge},
      {"ragan", GanKind::ragan},
      {"ralsgan", GanKind::ralsgan},
  }};
  for (const auto& [known, kind] : kKinds) {
    if (name == known) return kind;
  }
  fail_usage(fmt::format("loss.gan: unknown kind \"{}\", allowed: vanilla, lsgan, hinge, ragan, ralsgan", name));
}

GanLoss::GanLoss(GanKind kind, double label_smoothing) : kind_(kind), real_label_(1 - label_smoothing) {
  if (kind == GanKind::hinge && label_smoothing != 0) {
    fail_usage(
        fmt::format("loss.gan: label_smoothing = {}, allowed with hinge: 0, which has no labels", label_smoothing));
  }
}

torch::Tensor GanLoss::distance(const torch::Tensor& logits, double label) const {
  if (kind_ == GanKind::lsgan || kind_ == GanKind::ralsgan) return (logits - label).square().mean();
  return at::binary_cross_entropy_with_logits(logits, at::full_like(logits, label));
}

torch::Tensor GanLoss::generator_part(const torch::Tensor& real, const torch::Tensor& fake) const {
  if (kind_ == GanKind::hinge) return -fake.mean();
  if (!is_relativistic()) return distance(fake, 1);
  const torch::Tensor fixed = real.detach();
  return (distance(fixed - fake.mean(), 0) + distance(fake - fixed.mean(), 1)) / 2;
}

torch::Tensor GanLoss::real_part(const torch::Tensor& logits) const {
  return kind_ == GanKind::hinge ? at::relu(1 - logits).mean() : distance(logits, real_label_);
}

torch::Tensor GanLoss::fake_part(const torch::Tensor& logits) const {
  return kind_ == GanKind::hinge ? at::relu(1 + logits).mean() : distance(logits, 0);
}

torch::Tensor GanLoss::discriminator_part(const torch::Tensor& real, const torch::Tensor& fake) const {
  if (!is_relativistic()) return real_part(real) + fake_part(fake);
  return (distance(real - fake.mean(), real_label_) + distance(fake - real.mean(), 0)) / 2;
}

torch::Tensor GanLoss::generator_loss(const std::vector<torch::Tensor>& real_logits,
                                      const std::vector<torch::Tensor>& fake_logits) const {
  return mean_over_scales(real_logits, fake_logits,
                          [&](const auto& real, const auto& fake) { return generator_part(real, fake); });
}

torch::Tensor GanLoss::discriminator_loss(const std::vector<torch::Tensor>& real_logits,
                                          const std::vector<torch::Tensor>& fake_logits) const {
  return mean_over_scales(real_logits, fake_logits,
                          [&](const auto& real, const auto& fake) { return discriminator_part(real, fake); });
}

torch::Tensor GanLoss::real_part(const std::vector<torch::Tensor>& real_logits) const {
  return mean_over_scales({}, real_logits, [&](const auto&, const auto& real) { return real_part(real); });
}

torch::Tensor GanLoss::fake_part(const std::vector<torch::Tensor>& fake_logits) const {
  return mean_over_scales({}, fake_logits, [&](const auto&, const auto& fake) { return fake_part(fake); });
}

torch::Tensor r1_penalty(const std::vector<torch::Tensor>& real_logits, const torch::Tensor& real) {
  torch::Tensor sum;
  for (const torch::Tensor& logits : real_logits) {
    const torch::Tensor one = in_full(logits).sum();
    sum = sum.defined() ? sum + one : one;
  }
  const torch::Tensor gradient =
      torch::autograd::grad({sum}, {real}, {}, /*retain_graph=*/true, /*create_graph=*/true).front();
  return in_full(gradient).square().flatten(1).sum(1).mean();
}

}  // namespace reelgrad
