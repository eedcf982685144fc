#include "reelgrad/nn/own_conv_backward.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

namespace reelgrad::own {

namespace {

// Layers whose weights' gradients are made together: enough pixels to fill a card for a while, and no more, for their
// dz are kept until then.
constexpr std::int64_t kPixelsTogether = 1 << 20;

torch::Tensor gradient_like(const torch::Tensor& t) {
  return t.defined() ? at::empty_like(t, t.options().dtype(torch::kFloat)) : torch::Tensor();
}

}  // namespace

Tensors Backward::run(const torch::Tensor& dy, const Tensors& parameters, bool of_input) {
  results_ = {torch::Tensor()};
  for (const torch::Tensor& parameter : parameters) results_.push_back(gradient_like(parameter));
  torch::Tensor dz = enter(dy);
  for (std::size_t i = row_.layers.size(); i-- > 0;) {
    waiting_.push_back(dz);
    if (i > 0) dz = through(i, dz);
    if (i == 0 || waiting_.size() == kConvMostGradients || enough_wait()) make_waiting(i);
  }
  if (of_input) results_.front() = input_gradient(dz);
  add_sums();
  return std::move(results_);
}

bool Backward::enough_wait() const {
  const torch::Tensor& dz = waiting_.front();
  const auto count = static_cast<std::int64_t>(waiting_.size());
  return count * dz.size(0) * dz.size(2) * dz.size(3) >= kPixelsTogether;
}

torch::Tensor Backward::new_sums(int rows) {
  return sums_.emplace_back(
      at::empty({rows, kConvSumRow}, kept_.input.options().dtype(torch::kFloat).memory_format(std::nullopt)));
}

// What the last activation took.
torch::Tensor Backward::enter(const torch::Tensor& dy) {
  const std::size_t last = row_.layers.size() - 1;
  const Row::Layer& layer = row_.layers[last];
  torch::Tensor dz = new_picture(kept_.input, rounded_up(layer.out, kUnit), row_.type);
  cuda::conv_top_gradient({.element = row_.element(),
                           .dy = tensor_of(dy),
                           .channels = layer.out,
                           .scale = std::max(row_.scale, 1),
                           .activation = layer.activation,
                           .slope = vector_of(kept_.slopes[last], layer.slope),
                           .z = picture_of(kept_.arguments[last]),
                           .dz = picture_of(dz),
                           .sums = new_sums(kConvTopSumRows).mutable_data_ptr<float>()},
                          stream());
  return dz;
}

// From what layer i's convolution gave to what the activation of the one below took.
torch::Tensor Backward::through(std::size_t i, const torch::Tensor& dz) {
  const Row::Layer& below = row_.layers[i - 1];
  torch::Tensor dz_below = new_picture(kept_.input, below.out, row_.type);
  const ConvPicture picture = picture_of(dz);
  cuda::conv3x3_backward({.element = row_.element(),
                          .dz = picture,
                          .packed = kept_.packed[i].const_data_ptr(),
                          .activation = below.activation,
                          .z_below = picture_of(kept_.arguments[i - 1]),
                          .dz_below = picture_of(dz_below),
                          .sums = new_sums(cuda::conv_sum_rows(picture)).mutable_data_ptr<float>()},
                         stream());
  return dz_below;
}

torch::Tensor Backward::input_gradient(const torch::Tensor& dz) const {
  torch::Tensor dx = new_picture(kept_.input, rounded_up(row_.layers.front().in, kUnit), row_.type);
  cuda::conv3x3_backward({.element = row_.element(),
                          .dz = picture_of(dz),
                          .packed = kept_.packed.front().const_data_ptr(),
                          .dz_below = picture_of(dx)},
                         stream());
  return dx.narrow(1, 0, row_.layers.front().in);
}

// Weights' gradients of the layers whose dz wait, of which the last is layer `first`.
void Backward::make_waiting(std::size_t first) {
  std::vector<ConvWeightGradient> gradients;
  for (std::size_t n = 0; n < waiting_.size(); ++n) {
    const std::size_t i = first + waiting_.size() - 1 - n;
    torch::Tensor& gradient = results_[1 + 3 * i];
    gradients.push_back({.x = picture_of(i == 0 ? kept_.input : kept_.results[i - 1]),
                         .dz = picture_of(waiting_[n]),
                         .out = row_.layers[i].out,
                         .in = row_.layers[i].in,
                         .gradient = gradient.mutable_data_ptr<float>(),
                         .out_step = gradient.stride(0),
                         .in_step = gradient.stride(1),
                         .tap_step = gradient.stride(3)});
  }
  const torch::Tensor workspace = at::empty({static_cast<std::int64_t>(cuda::weight_gradient_bytes(gradients.size()))},
                                            kept_.input.options().dtype(torch::kByte).memory_format(std::nullopt));
  cuda::conv_weight_gradients(row_.element(), gradients, workspace.data_ptr(), stream());
  waiting_.clear();
}

// Gradients of biases and slopes.
void Backward::add_sums() {
  std::vector<ConvSums> sums;
  for (std::size_t i = 0; i < row_.layers.size(); ++i) {
    const torch::Tensor& rows = sums_[row_.layers.size() - 1 - i];
    torch::Tensor &bias = results_[2 + 3 * i], &slope = results_[3 + 3 * i];
    sums.push_back({.rows = rows.const_data_ptr<float>(),
                    .row_count = static_cast<int>(rows.size(0)),
                    .channels = row_.layers[i].out,
                    .bias = bias.defined() ? bias.mutable_data_ptr<float>() : nullptr,
                    .slope = slope.defined() ? slope.mutable_data_ptr<float>() : nullptr,
                    .slopes = slope.defined() ? static_cast<int>(slope.size(0)) : 0});
  }
  for (std::size_t i = 0; i < sums.size(); i += kConvMostGradients) {
    const std::size_t count = std::min(kConvMostGradients, sums.size() - i);
    cuda::conv_add_sums(std::span(sums).subspan(i, count), stream());
  }
}

}  // namespace reelgrad::own
