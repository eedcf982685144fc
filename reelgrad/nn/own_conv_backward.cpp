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

// For convolutions' weights, biases and slopes in a list of three a layer.
constexpr std::size_t kWeight = 0, kBias = 1, kSlope = 2;

torch::Tensor gradient_like(const torch::Tensor& t) {
  return t.defined() ? at::empty_like(t, t.options().dtype(torch::kFloat)) : torch::Tensor();
}

// The kernels go backward through 64 channels at a time: what there is of block `block`.
ConvPicture block_of(ConvPicture picture, int block) {
  if (picture.data == nullptr) return picture;
  picture.data = static_cast<std::uint16_t*>(picture.data) + block * kConvBlock;
  picture.channels = std::min(kConvBlock, picture.channels - block * kConvBlock);
  return picture;
}

template <class Data>
Data* moved(Data* data, ElementType element, std::int64_t elements) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(element_bytes(element));
}

ConvTensor block_of(ConvTensor t, int block) {
  t.data = moved(t.data, t.element, block * kConvBlock * t.channel_step);
  return t;
}

ConvVector block_of(ConvVector v, int block) {
  if (v.data != nullptr && v.count > 1) v.data = moved(v.data, v.element, block * kConvBlock);
  return v;
}

}  // namespace

Backward::Backward(const Row& row, const Kept& kept, const Tensors& wanted, bool of_input)
    : row_(row), kept_(kept), wants_input_(of_input) {
  for (const torch::Tensor& parameter : wanted) of_parameters_.push_back(gradient_like(parameter));
  const auto wants = [&](std::size_t layer) {
    return std::ranges::any_of(std::span(wanted).subspan(3 * layer, 3),
                               [](const torch::Tensor& t) { return t.defined(); });
  };
  while (!of_input && lowest_ < row.layers.size() && !wants(lowest_)) ++lowest_;
}

void Backward::run(const torch::Tensor& dy) {
  if (lowest_ == row_.layers.size()) return;
  std::size_t i = row_.layers.size() - 1;
  torch::Tensor dz = through_activation(i, dy, row_.factor);
  for (;; --i) {
    if (of_parameters_[3 * i + kWeight].defined()) waiting_.push_back({i, dz});
    if (i > lowest_) dz = to_layer_below(i, dz);
    if (i == lowest_ || enough_wait()) make_waiting();
    if (i == lowest_) break;
  }
  if (wants_input_) of_input_ = through_convolution(0, dz);
  add_sums();
}

bool Backward::enough_wait() const {
  std::int64_t pixels = 0;
  for (const Waiting& one : waiting_) pixels += one.dz.size(0) * one.dz.size(2) * one.dz.size(3);
  return pixels >= kPixelsTogether;
}

bool Backward::wants_sums(std::size_t layer) const {
  return of_parameters_[3 * layer + kBias].defined() || of_parameters_[3 * layer + kSlope].defined();
}

// Null where nobody wants them.
float* Backward::new_sums(std::size_t layer, int block, int rows) {
  if (!wants_sums(layer)) return nullptr;
  const auto options = kept_.input.options().dtype(torch::kFloat).memory_format(std::nullopt);
  return sums_.emplace_back(Sums{layer, block, at::empty({rows, kConvSumRow}, options)}).rows.mutable_data_ptr<float>();
}

// From what layer i gave to what its activation took.
torch::Tensor Backward::through_activation(std::size_t i, const torch::Tensor& dy, float factor) {
  const Row::Layer& layer = row_.layers[i];
  torch::Tensor dz = new_picture(kept_.input, layer.out, row_.type);
  for (int block = 0; block < conv_blocks(layer.out, kConvBlock); ++block) {
    cuda::conv_top_gradient({.element = row_.element(),
                             .dy = block_of(tensor_of(dy), block),
                             .channels = std::min(kConvBlock, layer.out - block * kConvBlock),
                             .scale = i + 1 == row_.layers.size() ? row_.scale : 1,
                             .factor = factor,
                             .activation = layer.activation,
                             .slope = block_of(vector_of(kept_.slopes[i], layer.slope), block),
                             .z = block_of(picture_of(kept_.arguments[i]), block),
                             .dz = block_of(padded_picture_of(dz), block),
                             .sums = new_sums(i, block, kConvTopSumRows)},
                            stream());
  }
  return dz;
}

// To the gradient of its input: the forward kernels' work with the weights turned round.
torch::Tensor Backward::through_convolution(std::size_t i, const torch::Tensor& dz) const {
  torch::Tensor dx = new_picture(kept_.input, row_.layers[i].in, row_.type);
  row_.convolve({.element = row_.element(),
                 .x = picture_of(dz),
                 .packed = kept_.packed[i].const_data_ptr(),
                 .y = picture_of(dx)});
  return dx;
}

// From what layer i's convolution gave to what the activation of the one below took: on Hopper at once up to 64
// channels.
torch::Tensor Backward::to_layer_below(std::size_t i, const torch::Tensor& dz) {
  const Row::Layer& below = row_.layers[i - 1];
  if (row_.by_warps || row_.layers[i].out > kConvBlock || below.out > kConvBlock) {
    const torch::Tensor dy = through_convolution(i, dz);
    const bool nothing_left = below.activation == ConvActivation::none && !wants_sums(i - 1);
    return nothing_left ? dy : through_activation(i - 1, dy, /*factor=*/1);
  }
  torch::Tensor dz_below = new_picture(kept_.input, below.out, row_.type);
  const ConvPicture picture = picture_of(dz);
  cuda::conv3x3_backward({.element = row_.element(),
                          .dz = picture,
                          .packed = kept_.packed[i].const_data_ptr(),
                          .activation = below.activation,
                          .z_below = picture_of(kept_.arguments[i - 1]),
                          .dz_below = picture_of(dz_below),
                          .sums = new_sums(i - 1, 0, cuda::conv_sum_rows(picture))},
                         stream());
  return dz_below;
}

void Backward::add_weight_gradients(std::size_t i, const torch::Tensor& dz,
                                    std::vector<ConvWeightGradient>& gradients) {
  const Row::Layer& layer = row_.layers[i];
  torch::Tensor& gradient = of_parameters_[3 * i + kWeight];
  const ConvPicture x = picture_of(i == 0 ? kept_.input : kept_.results[i - 1]);
  for (int out = 0; out < conv_blocks(layer.out, kConvBlock); ++out)
    for (int in = 0; in < conv_blocks(layer.in, kConvBlock); ++in)
      gradients.push_back({.x = block_of(x, in),
                           .dz = block_of(picture_of(dz), out),
                           .out = std::min(kConvBlock, layer.out - out * kConvBlock),
                           .in = std::min(kConvBlock, layer.in - in * kConvBlock),
                           .gradient = gradient.mutable_data_ptr<float>() + out * kConvBlock * gradient.stride(0) +
                                       in * kConvBlock * gradient.stride(1),
                           .out_step = gradient.stride(0),
                           .in_step = gradient.stride(1),
                           .tap_step = gradient.stride(3)});
}

void Backward::make_waiting() {
  std::vector<ConvWeightGradient> gradients;
  for (const Waiting& one : waiting_) add_weight_gradients(one.layer, one.dz, gradients);
  for (std::size_t i = 0; i < gradients.size(); i += kConvMostGradients) {
    const std::size_t count = std::min(kConvMostGradients, gradients.size() - i);
    const torch::Tensor workspace = at::empty({static_cast<std::int64_t>(cuda::weight_gradient_bytes(count))},
                                              kept_.input.options().dtype(torch::kByte).memory_format(std::nullopt));
    const auto make = row_.by_warps ? cuda::warp::conv_weight_gradients : cuda::conv_weight_gradients;
    make(row_.element(), std::span(gradients).subspan(i, count), workspace.data_ptr(), stream());
  }
  waiting_.clear();
}

// Gradients of biases and slopes. One slope for more channels than a block has is added up from those of all channels.
void Backward::add_sums() {
  std::vector<ConvSums> jobs;
  std::vector<std::pair<std::size_t, torch::Tensor>> of_channels;
  for (const Sums& sums : sums_) {
    const Row::Layer& layer = row_.layers[sums.layer];
    torch::Tensor& bias = of_parameters_[3 * sums.layer + kBias];
    torch::Tensor slope = of_parameters_[3 * sums.layer + kSlope];
    if (slope.defined() && slope.size(0) == 1 && layer.out > kConvBlock) {
      if (sums.block == 0) of_channels.emplace_back(sums.layer, at::empty({layer.out}, slope.options()));
      slope = of_channels.back().second;
    }
    const int first = sums.block * kConvBlock;
    jobs.push_back({.rows = sums.rows.const_data_ptr<float>(),
                    .row_count = static_cast<int>(sums.rows.size(0)),
                    .channels = std::min(kConvBlock, layer.out - first),
                    .bias = bias.defined() ? bias.mutable_data_ptr<float>() + first : nullptr,
                    .slope = slope.defined() ? slope.mutable_data_ptr<float>() + first : nullptr,
                    .slopes = slope.defined() ? static_cast<int>(slope.size(0)) : 0});
  }
  for (std::size_t i = 0; i < jobs.size(); i += kConvMostGradients) {
    const std::size_t count = std::min(kConvMostGradients, jobs.size() - i);
    cuda::conv_add_sums(std::span(jobs).subspan(i, count), stream());
  }
  for (const auto& [layer, slopes] : of_channels) of_parameters_[3 * layer + kSlope] = slopes.sum(0, /*keepdim=*/true);
}

}  // namespace reelgrad::own
