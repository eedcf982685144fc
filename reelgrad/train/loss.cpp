#include "reelgrad/train/loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

torch::Tensor at_least_float(const torch::Tensor& tensor) {
  const bool reduced = tensor.scalar_type() == torch::kFloat16 || tensor.scalar_type() == torch::kBFloat16;
  return reduced ? tensor.to(torch::kFloat32) : tensor;
}

}  // namespace

torch::Tensor compute_loss(const LossConfig& config, const torch::Tensor& prediction, const torch::Tensor& target) {
  if (prediction.sizes() != target.sizes()) {
    fail(fmt::format("the network's output is [{}], the target [{}]", fmt::join(prediction.sizes(), ", "),
                     fmt::join(target.sizes(), ", ")));
  }
  const torch::Tensor difference = at_least_float(prediction) - at_least_float(target);
  torch::Tensor total = difference.new_zeros({});
  if (config.l1 > 0) total = total + config.l1 * difference.abs().mean();
  if (config.charbonnier > 0) {
    const double eps = config.charbonnier_eps;
    total = total + config.charbonnier * (difference.square() + eps * eps).sqrt().mean();
  }
  return total;
}

}  // namespace reelgrad
