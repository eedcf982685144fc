#include "reelgrad/nn/spectral_conv.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/init.h>
#include <torch/torch.h>

#include <cmath>

namespace reelgrad {
namespace {

constexpr double kSpectralEps = 1e-12;  // torch's

// Autocast would multiply matrix and vector in a half type.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(torch::DeviceType device)
      : device_(device), enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~WithoutAutocast() { at::autocast::set_autocast_enabled(device_, enabled_); }
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  torch::DeviceType device_;
  bool enabled_;
};

torch::Tensor unit_vector(const torch::Tensor& x) {
  return x / x.norm().clamp_min(kSpectralEps);
}

}  // namespace

SpectralConv2d::SpectralConv2d(const SpectralConvOptions& options) : options_(options) {
  const torch::Tensor weight = torch::empty({options.out, options.in, options.kernel, options.kernel});
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (options.bias) {
    const double bound = 1 / std::sqrt(static_cast<double>(options.in) * options.kernel * options.kernel);
    bias_ = register_parameter("bias", torch::nn::init::uniform_(torch::empty({options.out}), -bound, bound));
  }
  weight_ = register_parameter(options.spectral ? "weight_orig" : "weight", weight);
  if (!options.spectral) return;
  u_ = register_buffer("weight_u", unit_vector(torch::empty({options.out}).normal_()));
  v_ = register_buffer("weight_v", unit_vector(torch::empty({weight.numel() / options.out}).normal_()));
}

torch::Tensor SpectralConv2d::make_weight() {
  if (!options_.spectral) return weight_;
  const WithoutAutocast full_precision(weight_.device().type());
  const torch::Tensor matrix = weight_.flatten(1);
  if (is_training()) {
    const torch::NoGradGuard no_grad;
    v_.copy_(unit_vector(at::mv(matrix.t(), u_)));
    u_.copy_(unit_vector(at::mv(matrix, v_)));
  }
  // Copies: the next pass changes the buffers, perhaps before this one's backward.
  const torch::Tensor u = u_.clone(), v = v_.clone();
  return weight_ / at::dot(u, at::mv(matrix, v));
}

torch::Tensor SpectralConv2d::forward(const torch::Tensor& x, const torch::Tensor& weight,
                                      Activation activation) const {
  const bool is_3x3 = options_.kernel == 3 && options_.stride == 1 && options_.padding == 1;
  if (is_3x3 && !options_.second_derivatives) return conv3x3_act(x, weight, bias_, activation);
  torch::Tensor y = at::conv2d(x, weight, bias_, options_.stride, options_.padding);
  // In place: one tensor less for the backward pass.
  return activation == Activation::none ? y : at::leaky_relu_(y, 0.2);
}

}  // namespace reelgrad
