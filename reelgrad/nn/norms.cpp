#include "reelgrad/nn/norms.h"

#include "reelgrad/nn/conv_act.h"

namespace reelgrad {
namespace {

torch::Tensor without_norm(torch::nn::Conv2d conv, const torch::Tensor& x) {
  return conv(x);
}

// Float32 or wider: for what is measured, and multiplied before it is rounded.
torch::ScalarType wide_type(const torch::Tensor& like) {
  return at::promote_types(like.scalar_type(), torch::kFloat32);
}

bool is_same_3x3(const torch::nn::detail::ConvNdOptions<2>& options) {
  const auto is = [](const auto& sizes, std::int64_t value) { return sizes->at(0) == value && sizes->at(1) == value; };
  return is(options.kernel_size(), 3) && is(options.stride(), 1) && is(options.dilation(), 1) && options.groups() == 1;
}

// The mean and the variance of each channel [N, C], and x less that mean in its own type. Half types cannot
// hold sums of a picture's squares, and rounding is made up for: the mean that was taken is the rounded one.
struct ChannelMoments {
  torch::Tensor mean, variance, centred;
};

ChannelMoments moments_of(const torch::Tensor& x) {
  const torch::ScalarType wide = wide_type(x);
  const double pixels = static_cast<double>(x.size(2) * x.size(3));
  const torch::Tensor mean = at::sum(x, {2, 3}, /*keepdim=*/false, wide) / pixels;
  const torch::Tensor taken = mean.to(x.scalar_type());
  const torch::Tensor centred = x - taken.view({x.size(0), -1, 1, 1});
  const torch::Tensor left = mean - taken;
  const torch::Tensor length = at::linalg_vector_norm(centred, 2, {2, 3}, /*keepdim=*/false, wide);
  return {.mean = taken.to(wide), .variance = length.square() / pixels - left.square(), .centred = centred};
}

}  // namespace

torch::Tensor conv_norm_relu(const torch::Tensor& x, const torch::nn::Conv2d& conv,
                             const torch::nn::BatchNorm2d& norm) {
  const auto& options = conv->options;
  if (norm->is_training()) {
    const torch::Tensor y =
        is_same_3x3(options) ? conv3x3_act(x, conv->weight, conv->bias, Activation::none) : without_norm(conv, x);
    torch::nn::BatchNorm2d measured = norm;
    return at::relu(measured(y));
  }
  const torch::Tensor wide = conv->weight.to(wide_type(conv->weight));
  const torch::Tensor gain = norm->weight * (norm->running_var.to(wide.scalar_type()) + norm->options.eps()).rsqrt();
  const torch::Tensor weight = (wide * gain.view({-1, 1, 1, 1})).to(x.scalar_type());
  const torch::Tensor start = conv->bias.defined() ? conv->bias - norm->running_mean : -norm->running_mean;
  const torch::Tensor bias =
      at::addcmul(norm->bias.to(wide.scalar_type()), start.to(wide.scalar_type()), gain).to(x.scalar_type());
  if (is_same_3x3(options)) return conv3x3_act(x, weight, bias, Activation::relu);
  const auto& padding = std::get<torch::ExpandingArray<2>>(options.padding());
  return at::relu(at::conv2d(x, weight, bias, options.stride(), padding, options.dilation(), options.groups()));
}

// Torch's kernel gives each group of a picture to one block of threads: of a large picture's 4 or 8 groups a card with
// a hundred multiprocessors works on so many at a time.
torch::Tensor group_norm(const torch::Tensor& x, const torch::nn::GroupNorm& norm) {
  if (!x.is_cuda() || at::GradMode::is_enabled()) {
    torch::nn::GroupNorm torchs = norm;
    return torchs(x);
  }
  const std::int64_t groups = norm->options.num_groups(), pictures = x.size(0);
  const ChannelMoments channels = moments_of(x);
  const torch::Tensor means = channels.mean.view({pictures, groups, -1});
  const torch::Tensor mean = means.mean(-1, /*keepdim=*/true);
  const torch::Tensor variance =
      (channels.variance.view({pictures, groups, -1}) + (means - mean).square()).mean(-1, /*keepdim=*/true);
  const torch::Tensor gain =
      (variance + norm->options.eps()).rsqrt() * norm->weight.to(mean.scalar_type()).view({groups, -1});
  const torch::Tensor shift = at::addcmul(norm->bias.to(mean.scalar_type()).view({groups, -1}), means - mean, gain);
  const auto laid_out = [&](const torch::Tensor& values) {
    return values.to(x.scalar_type()).view({pictures, -1, 1, 1});
  };
  return at::addcmul(laid_out(shift), channels.centred, laid_out(gain));
}

}  // namespace reelgrad
