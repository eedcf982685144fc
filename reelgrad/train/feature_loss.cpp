#include "reelgrad/train/feature_loss.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/config/feature_files.h"
#include "reelgrad/doctor/torch/torch_install.h"
#include "reelgrad/nn/weights_file.h"
#include "reelgrad/train/checkpointing.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<torch::Tensor>;

constexpr int kMatrixOfNetworks = 1;  // BT.709

bool is_half(torch::ScalarType type) {
  return type == torch::kHalf || type == torch::kBFloat16;
}

// Sums of half types are float32.
torch::ScalarType type_of_sums(const torch::Tensor& x) {
  return is_half(x.scalar_type()) ? torch::kFloat32 : x.scalar_type();
}

torch::Tensor in_type_of_sums(const torch::Tensor& x) {
  return x.to(type_of_sums(x));
}

torch::ScalarType type_to_run_in(Precision precision, const torch::Tensor& pictures) {
  if (precision == Precision::fp32) return pictures.scalar_type();
  return precision == Precision::fp16 ? torch::kHalf : torch::kBFloat16;
}

// The modules that these losses come from keep such numbers in float32.
std::vector<double> in_float32(std::vector<double> values) {
  for (double& value : values) value = static_cast<float>(value);
  return values;
}

std::vector<double> imagenet_mean() {
  return in_float32({0.485, 0.456, 0.406});
}
std::vector<double> imagenet_deviation() {
  return in_float32({0.229, 0.224, 0.225});
}

std::vector<double> values_in(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().to(torch::kFloat64).contiguous().flatten();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

torch::Tensor find_tensor(const NamedTensors& tensors, const std::string& name, const fs::path& file) {
  const auto found = std::ranges::find(tensors, name, [](const auto& item) { return item.first; });
  if (found == tensors.end()) fail(fmt::format("{}: {} is missing", file.string(), name));
  return found->second;
}

fs::path named_or_found(const fs::path& named, const fs::path& found, const char* key, std::string_view what) {
  if (!named.empty()) return named;
  if (found.empty()) fail_usage(fmt::format("{}: missing, and no installed Python package has it: {}", key, what));
  return found;
}

torch::Tensor plus(const torch::Tensor& sum, const torch::Tensor& value) {
  return sum.defined() ? sum + value : value;
}

}  // namespace

// --- Colours, and the network ---

torch::Tensor as_rgb(const torch::Tensor& pictures, NetworkColor color) {
  if (color == NetworkColor::rgb) return pictures;
  if (color == NetworkColor::gray) return pictures.expand({-1, 3, -1, -1});
  const auto [kr, kb] = luma_weights(kMatrixOfNetworks);
  const Tensors planes = pictures.unbind(1);
  const torch::Tensor blue = planes[0] + 2 * (1 - kb) * (planes[1] - 0.5);
  const torch::Tensor red = planes[0] + 2 * (1 - kr) * (planes[2] - 0.5);
  return torch::stack({red, (planes[0] - kr * red - kb * blue) / (1 - kr - kb), blue}, 1);
}

FeatureLoss::FeatureLoss(FeatureNetwork network, NetworkColor color, Precision precision, std::vector<double> mean,
                         std::vector<double> deviation)
    : network_(std::move(network)),
      color_(color),
      precision_(precision),
      mean_(std::move(mean)),
      deviation_(std::move(deviation)) {}

Tensors FeatureLoss::features(const torch::Tensor& rgb) {
  const torch::Tensor normal = (rgb - mean_.like(rgb).view({1, 3, 1, 1})) / deviation_.like(rgb).view({1, 3, 1, 1});
  const torch::ScalarType type = type_to_run_in(precision_, rgb);
  network_.place(rgb.device(), type);
  torch::Tensor x = normal.to(type);
  if (x.is_cuda()) x = x.contiguous(torch::MemoryFormat::ChannelsLast);
  SegmentedPass pass{.segments = network_.segments()};
  const CheckpointPlan plan{.segments = checkpointing_ ? automatic_segments(pass.segments.size()) : 0};
  return run_checkpointed(pass, {x}, plan);
}

torch::Tensor FeatureLoss::operator()(const torch::Tensor& prediction, const torch::Tensor& target) {
  const AutocastGuard no_autocast(prediction.device(), Precision::fp32);  // types are chosen here
  torch::Tensor target_rgb;
  Tensors target_features;
  {
    const torch::NoGradGuard no_grad;
    target_rgb = as_rgb(target, color_);
    target_features = features(target_rgb);
  }
  const torch::Tensor rgb = as_rgb(prediction, color_);
  return distance(rgb, target_rgb, features(rgb), target_features);
}

// --- VGG19's features ---

namespace {

std::vector<std::pair<int, double>> taps_of(const PerceptualConfig& config) {
  std::vector<std::pair<int, double>> taps;
  for (const auto& [name, weight] : config.layers) {
    const std::optional<int> layer = vgg19_layer(name);
    if (!layer) fail_usage(fmt::format("loss.perceptual.layers.{}: no layer of VGG19", name));
    if (weight > 0) taps.emplace_back(*layer, weight);
  }
  if (taps.empty()) fail_usage("loss.perceptual.layers: none has a weight above 0");
  std::ranges::sort(taps);
  return taps;
}

FeatureNetworkOptions perceptual_options(const PerceptualConfig& config) {
  FeatureNetworkOptions options{.backbone = Backbone::vgg19};
  for (const auto& [layer, weight] : taps_of(config)) options.taps.push_back(layer);
  return options;
}

torch::Tensor gram_matrix(const torch::Tensor& features) {
  const torch::Tensor rows = in_type_of_sums(features).flatten(2);  // [N, C, H W]
  return rows.bmm(rows.transpose(1, 2)) / static_cast<double>(features.size(1) * rows.size(2));
}

}  // namespace

PerceptualLoss::PerceptualLoss(const PerceptualConfig& config, NetworkColor color, Precision precision)
    : FeatureLoss({perceptual_options(config), config.weights}, color, precision, imagenet_mean(),
                  imagenet_deviation()),
      criterion_(config.criterion) {
  for (const auto& [layer, weight] : taps_of(config)) weights_.push_back(weight);
}

torch::Tensor PerceptualLoss::of_layer(const torch::Tensor& prediction, const torch::Tensor& target) const {
  if (criterion_ == "gram") return (gram_matrix(prediction) - gram_matrix(target)).abs().mean();
  const torch::ScalarType type = type_of_sums(prediction);
  if (criterion_ == "mse") return (prediction.to(type) - target.to(type)).square().mean();
  return at::mean((prediction - target).abs(), type);
}

torch::Tensor PerceptualLoss::distance(const torch::Tensor&, const torch::Tensor&, const Tensors& prediction_features,
                                       const Tensors& target_features) {
  torch::Tensor sum;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    sum = plus(sum, weights_[i] * of_layer(prediction_features[i], target_features[i]));
  }
  return sum;
}

// --- LPIPS ---

namespace {

FeatureNetworkOptions lpips_options(const LpipsConfig& config) {
  if (config.net == "alex") return {.backbone = Backbone::alexnet, .taps = {1, 4, 7, 9, 11}};
  return {.backbone = Backbone::vgg16, .taps = {3, 8, 15, 22, 29}};
}

// Of pictures in [0, 1], where the package's own numbers are of those in [-1, 1].
std::vector<double> lpips_mean() {
  std::vector<double> mean = in_float32({-0.030, -0.088, -0.188});
  for (double& value : mean) value = (value + 1) / 2;
  return mean;
}
std::vector<double> lpips_deviation() {
  std::vector<double> deviation = in_float32({0.458, 0.448, 0.450});
  for (double& value : deviation) value /= 2;
  return deviation;
}

// Each place's channels over their norm; where all are 0 they stay so, and get no gradient.
torch::Tensor unit_features(const torch::Tensor& features) {
  constexpr double kEps = 1e-10;
  const torch::Tensor x = in_type_of_sums(features);
  return x / (at::linalg_vector_norm(x, 2, {1}, /*keepdim=*/true) + kEps);
}

}  // namespace

LpipsLoss::LpipsLoss(const LpipsConfig& config, NetworkColor color, Precision precision)
    : FeatureLoss({lpips_options(config), config.backbone}, color, precision, lpips_mean(), lpips_deviation()) {
  const fs::path file =
      named_or_found(config.weights, file_of_python_package(fs::path("lpips/weights/v0.1") / (config.net + ".pth")),
                     "loss.lpips.weights", kNoLpips);
  const NamedTensors tensors = read_weights(file).tensors;
  for (int i = 0; i < 5; ++i) {
    weights_.emplace_back(values_in(find_tensor(tensors, fmt::format("lin{}.model.1.weight", i), file)));
  }
}

torch::Tensor LpipsLoss::distance(const torch::Tensor&, const torch::Tensor&, const Tensors& prediction_features,
                                  const Tensors& target_features) {
  torch::Tensor sum;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const torch::Tensor squares = (unit_features(prediction_features[i]) - unit_features(target_features[i])).square();
    // [N, C, H, W] -> [C] before the weights: a sum in another order.
    sum = plus(sum, (squares.mean({0, 2, 3}) * weights_[i].like(squares)).sum());
  }
  return sum;
}

// --- DISTS ---

namespace {

constexpr std::array<std::int64_t, 6> kDistsChannels{3, 64, 128, 256, 512, 512};

// Runs of the channels of each layer, over `total`.
std::vector<ConstantVector> parts_of(const std::vector<double>& values, double total) {
  std::vector<ConstantVector> parts;
  auto next = values.begin();
  for (const std::int64_t channels : kDistsChannels) {
    std::vector<double> part(next, next + channels);
    next += channels;
    for (double& value : part) value /= total;
    parts.emplace_back(std::move(part));
  }
  return parts;
}

// [N] each: what structure and texture of one layer's features have in common, weighted by channel.
torch::Tensor common(const torch::Tensor& prediction, const torch::Tensor& target, const torch::Tensor& alpha,
                     const torch::Tensor& beta) {
  constexpr double kSmall = 1e-6;
  const torch::Tensor x = in_type_of_sums(prediction), y = in_type_of_sums(target);
  const torch::Tensor x_mean = x.mean({2, 3}, true), y_mean = y.mean({2, 3}, true);  // [N, C, 1, 1]
  const torch::Tensor texture = (2 * x_mean * y_mean + kSmall) / (x_mean.square() + y_mean.square() + kSmall);
  const torch::Tensor x_variance = (x - x_mean).square().mean({2, 3}, true);
  const torch::Tensor y_variance = (y - y_mean).square().mean({2, 3}, true);
  const torch::Tensor covariance = ((x - x_mean) * (y - y_mean)).mean({2, 3}, true);
  const torch::Tensor structure = (2 * covariance + kSmall) / (x_variance + y_variance + kSmall);
  return (alpha * texture.flatten(1) + beta * structure.flatten(1)).sum(1);
}

}  // namespace

DistsLoss::DistsLoss(const DistsConfig& config, NetworkColor color, Precision precision)
    : FeatureLoss({{.backbone = Backbone::vgg16, .taps = {3, 8, 15, 22, 29}, .l2_pooling = true}, config.backbone},
                  color, precision, imagenet_mean(), imagenet_deviation()) {
  const fs::path file = named_or_found(config.weights, file_of_python_package("DISTS_pytorch/weights.pt", "weights.pt"),
                                       "loss.dists.weights", kNoDists);
  const NamedTensors tensors = read_weights(file).tensors;
  const std::vector<double> alpha = values_in(find_tensor(tensors, "alpha", file)),
                            beta = values_in(find_tensor(tensors, "beta", file));
  const std::size_t needed = std::accumulate(kDistsChannels.begin(), kDistsChannels.end(), std::size_t{0});
  if (alpha.size() != needed || beta.size() != needed) {
    fail(fmt::format("{}: alpha and beta have {} and {} values, needed: {}", file.string(), alpha.size(), beta.size(),
                     needed));
  }
  const double total =
      std::accumulate(alpha.begin(), alpha.end(), 0.0) + std::accumulate(beta.begin(), beta.end(), 0.0);
  alpha_ = parts_of(alpha, total);
  beta_ = parts_of(beta, total);
}

torch::Tensor DistsLoss::distance(const torch::Tensor& prediction, const torch::Tensor& target,
                                  const Tensors& prediction_features, const Tensors& target_features) {
  torch::Tensor sum = common(prediction, target, alpha_[0].like(prediction), beta_[0].like(prediction));
  for (std::size_t i = 0; i < prediction_features.size(); ++i) {
    const torch::Tensor &alpha = alpha_[i + 1].like(prediction), &beta = beta_[i + 1].like(prediction);
    sum = sum + common(prediction_features[i], target_features[i], alpha, beta);
  }
  return 1 - sum.mean();
}

// --- Files of Python packages ---

fs::path file_of_python_package(const fs::path& in_site_packages, const fs::path& in_environment) {
  std::vector<fs::path> folders = site_packages_around(executable_path());
  if (const auto torch = find_torch()) folders.insert(folders.begin(), torch->dir.parent_path());
  if (const char* active = std::getenv("VIRTUAL_ENV")) {
    std::ranges::copy(site_packages_around(fs::path(active) / "bin" / "python"), std::back_inserter(folders));
  }
  std::error_code ignored;
  for (const fs::path& folder : folders) {
    if (fs::path file = folder / in_site_packages; fs::is_regular_file(file, ignored)) return file;
    if (in_environment.empty()) continue;
    const fs::path environment = folder.parent_path().parent_path().parent_path();  // …/lib/python3.N/site-packages
    if (fs::path file = environment / in_environment; fs::is_regular_file(file, ignored)) return file;
  }
  return {};
}

}  // namespace reelgrad
