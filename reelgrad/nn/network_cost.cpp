#include "reelgrad/nn/network_cost.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <memory>
#include <string_view>

namespace reelgrad {
namespace {

thread_local double flops = 0;

// Inputs can be looked at when an op begins, outputs when it ends.
struct Begun : at::ObserverContext {
  double flops = 0, flops_per_output = 0;
};

// [N, I / groups, …kernel] for a convolution; transposed: [I, O / groups, …kernel], applied at each input pixel.
void begin_convolution(c10::ArrayRef<const c10::IValue> inputs, Begun& begun) {
  const torch::Tensor input = inputs[0].toTensor(), weight = inputs[1].toTensor();
  const bool transposed = inputs[6].toBool();
  const double taps = static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0));
  (transposed ? begun.flops : begun.flops_per_output) =
      2 * taps * (transposed ? static_cast<double>(input.numel()) : 1);
}

// [.., M, K] times [.., K, N].
double product_flops(const c10::IValue& first, const c10::IValue& second) {
  return 2 * static_cast<double>(first.toTensor().numel()) * static_cast<double>(second.toTensor().size(-1));
}

// Counted where the work is done, whatever op asked for it.
std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& function) {
  auto begun = std::make_unique<Begun>();
  const std::string_view name = function.name();
  const auto inputs = function.inputs();
  if (name == "aten::convolution") begin_convolution(inputs, *begun);
  if (name == "aten::mm" || name == "aten::bmm") begun->flops = product_flops(inputs[0], inputs[1]);
  if (name == "aten::addmm" || name == "aten::baddbmm") begun->flops = product_flops(inputs[1], inputs[2]);
  return begun;
}

void end_op(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto& begun = static_cast<const Begun&>(*context);
  flops += begun.flops;
  if (begun.flops_per_output > 0)
    flops += begun.flops_per_output * static_cast<double>(function.outputs().at(0).toTensor().numel());
}

}  // namespace

double count_flops(const std::function<void()>& work) {
  flops = 0;
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(begin_op, end_op).needsInputs(true).needsOutputs(true));
  work();
  at::removeCallback(handle);
  return flops;
}

NetworkCost measure_cost(Network& network) {
  const torch::NoGradGuard no_grad;
  const NetworkInfo info = network.info();
  const std::int64_t side = (64 + info.size_multiple - 1) / info.size_multiple * info.size_multiple;
  std::vector<std::int64_t> shape{1, info.in_channels, side, side};
  if (info.window > 1) shape.insert(shape.begin() + 1, info.window);
  const bool training = network.is_training();
  network.eval();
  const double counted = count_flops([&] { network.forward(torch::zeros(shape)); });
  network.train(training);
  NetworkCost cost{.flops_per_input_pixel = counted / static_cast<double>(side * side)};
  for (const torch::Tensor& parameter : network.parameters()) cost.parameters += parameter.numel();
  return cost;
}

}  // namespace reelgrad
