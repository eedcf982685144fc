#include "reelgrad/nn/architecture_tools.h"

#include <fmt/format.h>

#include <algorithm>

#include <array>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/nn/initialisation.h"

namespace reelgrad {
namespace {

// A random matrix of as many rows as the first dimension has, with orthonormal rows (columns, where those are fewer).
// With the triangle L of A·Aᵀ = L·Lᵀ, the rows of L⁻¹·A are those of A's QR decomposition, for a tenth of its time.
torch::Tensor orthogonal_like(const torch::Tensor& weight) {
  const std::int64_t rows = weight.size(0), columns = weight.numel() / rows;
  const torch::Tensor random = at::randn({std::min(rows, columns), std::max(rows, columns)}).to(torch::kFloat64);
  const torch::Tensor triangle = at::linalg_cholesky(random.matmul(random.t()));
  const torch::Tensor even = at::linalg_solve_triangular(triangle, random, /*upper=*/false);
  return (rows <= columns ? even : even.t()).reshape(weight.sizes());
}

}  // namespace

int int_option(const NetworkSpec& spec, const std::string& name) {
  return std::stoi(spec.options.at(name));
}

std::vector<int> ints_option(const NetworkSpec& spec, const std::string& name) {
  std::vector<int> values;
  for (const std::string& word : split(spec.options.at(name), ',')) values.push_back(std::stoi(word));
  return values;
}

bool bool_option(const NetworkSpec& spec, const std::string& name) {
  return spec.options.at(name) == "true";
}

const std::string& text_option(const NetworkSpec& spec, const std::string& name) {
  return spec.options.at(name);
}

void require_single_frame(const NetworkSpec& spec) {
  if (spec.window == 1) return;
  fail_usage(fmt::format("{} looks at a single frame: data.window = {}, allowed: 1", spec.arch, spec.window));
}

void require_window(const NetworkSpec& spec, int window) {
  if (spec.window == window) return;
  fail_usage(
      fmt::format("{} looks at {} frames: data.window = {}, allowed: {}", spec.arch, window, spec.window, window));
}

std::optional<NetworkColor> color_of_channels(std::int64_t channels) {
  if (channels == 1) return NetworkColor::gray;
  if (channels == 3) return NetworkColor::rgb;
  return std::nullopt;
}

NoiseChannels noise_channels(std::int64_t in, std::int64_t out) {
  const NetworkColor by_inputs = in == 1 || in == 2 ? NetworkColor::gray : NetworkColor::rgb;
  const NetworkColor color = color_of_channels(out).value_or(by_inputs);
  if (in == 0) return {.color = color};
  return {.color = color, .noise_map = in == channels(color) + 1 ? "true" : "false"};
}

std::optional<int> pixel_shuffle_scale(std::int64_t channels, std::int64_t out) {
  for (int scale = 1; scale <= 8; ++scale) {
    if (channels == out * scale * scale) return scale;
  }
  return std::nullopt;
}

torch::nn::Conv2d same_conv(int in, int out, int kernel, bool bias) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).padding(kernel / 2).bias(bias));
}

torch::Tensor conv3x3_act(const torch::Tensor& input, const torch::nn::Conv2d& conv, Activation activation) {
  return conv3x3_act(input, conv->weight, conv->bias, activation);
}

torch::Tensor conv3x3_add(const torch::Tensor& input, const torch::nn::Conv2d& conv, const torch::Tensor& residual,
                          double factor) {
  return conv3x3_add(input, conv->weight, conv->bias, residual, factor);
}

// Pixels whose channels lie together are the rows of a matrix. Multiplied as that, in a half type on a card, they have
// the bias added on the way; behind a convolution of torch's that is a pass of its own, and a slow one.
torch::Tensor conv1x1(const torch::Tensor& input, const torch::nn::Conv2d& conv) {
  const bool half = input.scalar_type() == torch::kHalf || input.scalar_type() == torch::kBFloat16;
  if (!input.is_cuda() || !half || !input.is_contiguous(torch::MemoryFormat::ChannelsLast))
    return at::conv2d(input, conv->weight, conv->bias);
  const torch::Tensor pixels = input.permute({0, 2, 3, 1}).reshape({-1, input.size(1)});
  return at::linear(pixels, conv->weight.flatten(1), conv->bias)
      .view({input.size(0), input.size(2), input.size(3), -1})
      .permute({0, 3, 1, 2});
}

// Nothing is copied from the host, so that it may be captured.
torch::Tensor mean_colour(const torch::Tensor& like) {
  constexpr std::array<double, 3> kMean{0.4488, 0.4371, 0.4040};
  const torch::Tensor mean = at::empty({1, 3, 1, 1}, like.options());
  for (std::size_t i = 0; i < kMean.size(); ++i) mean.select(1, i).fill_(kMean[i]);
  return mean;
}

void register_at(torch::nn::Module& root, const std::string& key, const std::shared_ptr<torch::nn::Module>& module) {
  const auto dot = key.find('.');
  if (dot == std::string::npos) {
    root.register_module(key, module);
    return;
  }
  const std::string name = key.substr(0, dot);
  const auto children = root.named_children();
  const auto* found = children.find(name);
  const auto child = found ? *found : root.register_module(name, std::make_shared<torch::nn::Module>(name));
  register_at(*child, key.substr(dot + 1), module);
}

torch::Tensor run_segments(const std::vector<NetworkSegment>& segments, const torch::Tensor& input) {
  return run_segments(segments, std::vector{input});
}

torch::Tensor run_segments(const std::vector<NetworkSegment>& segments, std::vector<torch::Tensor> tensors) {
  for (const NetworkSegment& segment : segments) tensors = segment(tensors);
  return tensors.front();
}

// Added before the shuffle: a broadcast, where a nearest resize would write a picture.
torch::Tensor add_repeated(const torch::Tensor& subpixels, const torch::Tensor& input) {
  const std::int64_t repeats = subpixels.size(1) / input.size(1);
  return (subpixels.unflatten(1, {input.size(1), repeats}) + input.unsqueeze(2)).flatten(1, 2);
}

torch::Tensor with_noise_map(const torch::Tensor& input, int channels, int sigma) {
  if (input.size(1) == channels + 1) return input;
  return at::constant_pad_nd(input, {0, 0, 0, 0, 0, 1}, sigma / 255.0);
}

void init_orthogonal(torch::nn::Module& network, double gain) {
  if (initialisation_is_skipped()) return;
  const torch::NoGradGuard no_grad;
  const auto start = [gain](auto& conv) {
    conv.weight.copy_(orthogonal_like(conv.weight)).mul_(gain);
    if (conv.bias.defined()) conv.bias.zero_();
  };
  for (const auto& module : network.modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) start(*conv);
    if (auto* conv = module->as<torch::nn::ConvTranspose2dImpl>()) start(*conv);
  }
}

}  // namespace reelgrad
