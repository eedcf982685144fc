#include "reelgrad/train/wavelet_loss.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <numbers>
#include <string>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

// The low-pass of the decomposition: Daubechies' wavelets by their formulas, the symlet as tabulated.
std::vector<double> low_filter(const std::string& name) {
  const double root3 = std::numbers::sqrt3, scale = 4 * std::numbers::sqrt2;
  if (name == "haar") return {std::numbers::sqrt2 / 2, std::numbers::sqrt2 / 2};
  if (name == "db2") return {(1 - root3) / scale, (3 - root3) / scale, (3 + root3) / scale, (1 + root3) / scale};
  return {0.002681814568257878,  -0.0010473848886829163, -0.01263630340325193, 0.03051551316596357, 0.0678926935013727,
          -0.049552834937127255, 0.017441255086855827,   0.5361019170917628,   0.767764317003164,   0.2886296317515146,
          -0.14004724044296152,  -0.10780823770381774,   0.004010244871533663, 0.010268176708511255};
}

// The mirror image with every second sign turned.
std::vector<double> high_filter(const std::vector<double>& low) {
  std::vector<double> high(low.rbegin(), low.rend());
  for (std::size_t i = 0; i < high.size(); i += 2) high[i] = -high[i];
  return high;
}

// Normalised, and spread out for a level.
std::vector<double> spread(const std::vector<double>& filter, int level) {
  const std::size_t step = std::size_t{1} << level;
  std::vector<double> values((filter.size() - 1) * step + 1);
  for (std::size_t i = 0; i < filter.size(); ++i) values[i * step] = filter[i] / std::numbers::sqrt2;
  return values;
}

}  // namespace

WaveletLoss::WaveletLoss(const WaveletConfig& config) : config_(config) {
  const std::vector<double> low = low_filter(config.filter), high = high_filter(low);
  for (int level = 0; level < config.levels; ++level) {
    levels_.push_back({ConstantVector(spread(low, level)), ConstantVector(spread(high, level))});
  }
}

torch::Tensor WaveletLoss::operator()(const torch::Tensor& d) const {
  const int needed = smallest_for(config_);
  if (d.size(2) < needed || d.size(3) < needed) {
    fail_usage(
        fmt::format("loss.wavelet: the pictures are {}x{}, it needs {}x{} (data.crop_px times model.scale) or "
                    "more: raise data.crop_px, or set loss.wavelet = 0",
                    d.size(3), d.size(2), needed, needed));
  }
  torch::Tensor low = d, sum;
  const auto add_band = [&](double weight, const torch::Tensor& band) {
    if (weight == 0) return;
    const torch::Tensor term = weight * band.abs().mean();
    sum = sum.defined() ? sum + term : term;
  };
  for (const Level& level : levels_) {
    const torch::Tensor low_taps = level.low.like(d), high_taps = level.high.like(d);
    const torch::Tensor low_y = filter_lines(low, low_taps, 2), high_y = filter_lines(low, high_taps, 2);
    add_band(config_.lh, filter_lines(low_y, high_taps, 3));
    add_band(config_.hl, filter_lines(high_y, low_taps, 3));
    add_band(config_.hh, filter_lines(high_y, high_taps, 3));
    low = filter_lines(low_y, low_taps, 3);
  }
  add_band(config_.ll, low);
  return sum.defined() ? sum : 0 * d.sum();
}

}  // namespace reelgrad
