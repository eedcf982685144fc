#include "reelgrad/train/loss.h"

#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/fft_rfft2.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/edge_loss.h"
#include "reelgrad/train/focal_frequency_loss.h"
#include "reelgrad/train/ldl_loss.h"
#include "reelgrad/train/ssim_loss.h"
#include "reelgrad/train/wavelet_loss.h"

namespace reelgrad {
namespace {

torch::ScalarType type_to_compute_in(const torch::Tensor& prediction) {
  return prediction.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

// Of the difference of spectra, which is the spectrum of the difference.
torch::Tensor fft_loss(const torch::Tensor& d) {
  return at::view_as_real(at::fft_rfft2(d, std::nullopt, {-2, -1}, "ortho")).abs().mean();
}

// The average over squares takes what is fine away.
torch::Tensor color_loss(const torch::Tensor& d, NetworkColor color, int block_px) {
  return at::avg_pool2d(chroma_of_difference(d, color), block_px).abs().mean();
}

torch::Tensor temporal_loss(const torch::Tensor& d, std::int64_t frames) {
  return d.unflatten(0, {-1, frames}).diff(1, 1).abs().mean();
}

torch::Tensor frame_by_frame(const torch::Tensor& pictures) {
  return pictures.dim() == 5 ? pictures.flatten(0, 1) : pictures;
}

}  // namespace

// What the terms see: [N, C, H, W], the frames of a sample one after the other.
struct Loss::Pictures {
  std::int64_t frames;  // of a sample
  torch::Tensor prediction, target;
  torch::Tensor d;             // prediction - target
  torch::Tensor planes;        // d as the pixel losses see it
  torch::Tensor d_of_average;  // undefined: not asked for
};

Loss::Loss(const LossConfig& config, NetworkColor color, Precision precision)
    : planes_(config, color), temporal_(config.temporal.on()), asks_for_average_(config.ldl.on() && config.ldl.ema) {
  const PlaneWeights& planes = planes_;
  const double eps = config.charbonnier_eps, delta = config.huber_delta;
  add("l1", config.l1, [planes](const Pictures& p) { return planes.mean(p.planes.abs()); });
  add("mse", config.mse, [planes](const Pictures& p) { return planes.mean(p.planes.square()); });
  add("charbonnier", config.charbonnier,
      [planes, eps](const Pictures& p) { return planes.mean(charbonnier(p.planes, eps)); });
  add("huber", config.huber, [planes, delta](const Pictures& p) { return planes.mean(huber(p.planes, delta)); });
  add("ssim", config.ssim, [ssim = SsimLoss()](const Pictures& p) { return ssim.ssim(p.prediction, p.target); });
  add("ms_ssim", config.ms_ssim,
      [ssim = SsimLoss()](const Pictures& p) { return ssim.ms_ssim(p.prediction, p.target); });
  add("fft", config.fft, [](const Pictures& p) { return fft_loss(p.d); });
  add("edge", config.edge, [edge = EdgeLoss(config.edge_operator)](const Pictures& p) { return edge(p.d); });
  add("temporal", config.temporal, [](const Pictures& p) { return temporal_loss(p.d, p.frames); });
  add("ldl", config.ldl, [ldl = LdlLoss()](const Pictures& p) { return ldl(p.d, p.d_of_average); });
  add_frozen<PerceptualLoss>("perceptual", config.perceptual, color, precision);
  add_frozen<LpipsLoss>("lpips", config.lpips, color, precision);
  add_frozen<DistsLoss>("dists", config.dists, color, precision);
  add("focal_frequency", config.focal_frequency,
      [alpha = config.focal_frequency.alpha](const Pictures& p) { return focal_frequency_loss(p.d, alpha); });
  add("wavelet", config.wavelet, [wavelet = WaveletLoss(config.wavelet)](const Pictures& p) { return wavelet(p.d); });
  add("color", config.color,
      [color, block_px = config.color.block_px](const Pictures& p) { return color_loss(p.d, color, block_px); });
}

void Loss::add(const std::string& name, const LossWeight& weight, Value value) {
  if (!weight.on()) return;
  names_.push_back(name);
  terms_.push_back({weight, std::move(value)});
}

template <class Made, class Settings>
void Loss::add_frozen(const std::string& name, const Settings& settings, NetworkColor color, Precision precision) {
  if (!settings.on()) return;
  auto made = std::make_shared<Made>(settings, color, precision);
  frozen_.push_back(made);
  add(name, settings, [made](const Pictures& p) { return (*made)(p.prediction, p.target); });
}

void Loss::set_checkpointing(bool on) {
  for (const auto& loss : frozen_) loss->set_checkpointing(on);
}

// Before its start a term weighs 0; with a ramp of R steps the first step of it has 1/R of the weight.
torch::Tensor Loss::times_weight(const LossWeight& weight, const torch::Tensor& value) const {
  if (!weight.scheduled()) return weight.weight * value;
  if (!done_steps_.defined()) fail("a loss whose weight changes with the steps was not told of them");
  const double start = static_cast<double>(weight.start);
  const double ramp = static_cast<double>(std::max<std::int64_t>(weight.ramp, 1));
  const torch::Tensor share = ((done_steps_ - (start - 1)) / ramp).clamp(0, 1);
  return (weight.weight * share).to(value.scalar_type()) * value;
}

void Loss::check_shapes(const torch::Tensor& prediction, const torch::Tensor& target) const {
  if (prediction.sizes() != target.sizes()) {
    fail(fmt::format("the network's output is [{}], the target [{}]", fmt::join(prediction.sizes(), ", "),
                     fmt::join(target.sizes(), ", ")));
  }
  const bool frames = prediction.dim() == 5;
  const bool fits = temporal_ ? frames && prediction.size(1) > 1 : frames || prediction.dim() == 4;
  if (!fits) {
    fail(fmt::format("the loss is of {}, but the network's output is [{}]",
                     temporal_ ? "two or more frames [N, F, C, H, W]" : "pictures [N, C, H, W]",
                     fmt::join(prediction.sizes(), ", ")));
  }
}

LossValue Loss::operator()(const torch::Tensor& prediction, const torch::Tensor& target,
                           const torch::Tensor& average) const {
  check_shapes(prediction, target);
  const AutocastGuard full_precision(prediction.device(), Precision::fp32);
  const torch::ScalarType type = type_to_compute_in(prediction);
  Pictures pictures{.frames = prediction.dim() == 5 ? prediction.size(1) : 1,
                    .prediction = frame_by_frame(prediction.to(type)),
                    .target = frame_by_frame(target.to(type))};
  if (average.defined()) pictures.d_of_average = frame_by_frame(average.to(type)) - pictures.target;
  pictures.d = pictures.prediction - pictures.target;
  pictures.planes = planes_.seen(pictures.d);

  LossValue value;
  std::vector<torch::Tensor> weighted;
  for (const Term& term : terms_) {
    const torch::Tensor one = times_weight(term.weight, term.value(pictures));
    weighted.push_back(one.detach());
    value.total = value.total.defined() ? value.total + one : one;
  }
  value.terms = torch::stack(weighted);
  return value;
}

}  // namespace reelgrad
