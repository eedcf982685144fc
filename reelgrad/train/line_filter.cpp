#include "reelgrad/train/line_filter.h"

#include <ATen/ops/_conv_depthwise2d.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>

namespace reelgrad {
namespace {

// ATen's own kernel, called by its name: whatever the type, it neither goes to cuDNN nor uses TF32. Every line is a
// picture of one channel to it.
torch::Tensor correlate_on_card(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim,
                                std::int64_t padding) {
  const std::int64_t count = taps.size(0);
  std::array<std::int64_t, 2> size{1, 1}, pad{0, 0};
  size[static_cast<std::size_t>(dim - 2)] = count;
  pad[static_cast<std::size_t>(dim - 2)] = padding;
  const torch::Tensor out =
      at::_conv_depthwise2d(pictures.reshape({-1, 1, pictures.size(2), pictures.size(3)}),
                            taps.view({1, 1, size[0], size[1]}), size, std::nullopt, {1, 1}, pad, {1, 1});
  return out.view({pictures.size(0), pictures.size(1), out.size(2), out.size(3)});
}

std::vector<double> values_of(const torch::Tensor& taps) {
  const torch::Tensor values = taps.to(torch::kFloat64);
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

torch::Tensor correlate_on_cpu(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim) {
  const std::vector<double> values = values_of(taps);
  const std::int64_t size = pictures.size(dim) - taps.size(0) + 1;
  torch::Tensor sum = pictures.narrow(dim, 0, size) * values[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    sum.add_(pictures.narrow(dim, static_cast<std::int64_t>(k), size), values[k]);
  }
  return sum;
}

torch::Tensor spread_on_cpu(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim) {
  const std::vector<double> values = values_of(taps);
  std::vector<std::int64_t> sizes = pictures.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] += taps.size(0) - 1;
  torch::Tensor sum = pictures.new_zeros(sizes);
  for (std::size_t k = 0; k < values.size(); ++k) {
    sum.narrow(dim, static_cast<std::int64_t>(k), pictures.size(dim)).add_(pictures, values[k]);
  }
  return sum;
}

torch::Tensor correlate(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim) {
  TORCH_CHECK(pictures.size(dim) >= taps.size(0), "a filter of ", taps.size(0), " along dimension ", dim,
              " does not fit into ", pictures.sizes());
  return pictures.is_cpu() ? correlate_on_cpu(pictures, taps, dim) : correlate_on_card(pictures, taps, dim, 0);
}

class FilterLines : public torch::autograd::Function<FilterLines> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& pictures,
                               const torch::Tensor& taps, std::int64_t dim) {
    context->save_for_backward({taps});
    context->saved_data["dim"] = dim;
    return correlate(pictures, taps, dim);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::Tensor taps = context->get_saved_variables()[0];
    return {filter_lines_transposed(gradients[0], taps, context->saved_data["dim"].toInt()), {}, {}};
  }
};

}  // namespace

torch::Tensor ConstantVector::like(const torch::Tensor& tensor) const {
  const auto found = std::ranges::find_if(made_, [&](const torch::Tensor& made) {
    return made.device() == tensor.device() && made.scalar_type() == tensor.scalar_type();
  });
  if (found != made_.end()) return *found;
  return made_.emplace_back(torch::tensor(values_, torch::kFloat64).to(tensor.device(), tensor.scalar_type()));
}

torch::Tensor filter_lines(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim) {
  return FilterLines::apply(pictures, taps, dim);
}

torch::Tensor filter_lines_transposed(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim) {
  const torch::NoGradGuard no_grad;
  // On the card: the same filter turned round, over pictures with a margin of zeros.
  return pictures.is_cpu() ? spread_on_cpu(pictures, taps, dim)
                           : correlate_on_card(pictures, taps.flip(0), dim, taps.size(0) - 1);
}

}  // namespace reelgrad
