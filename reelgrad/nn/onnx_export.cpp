#include "reelgrad/nn/onnx_export.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/nn/host_threads.h"
#include "reelgrad/nn/recording.h"

namespace reelgrad {
namespace {

// Heights and widths in no common line, odd and even multiples; large enough for padding by reflection.
std::vector<InputSize> probed_sizes(const NetworkInfo& info) {
  constexpr std::int64_t kSmallest = 16;
  const std::int64_t multiple = info.size_multiple, least = (kSmallest + multiple - 1) / multiple;
  std::vector<InputSize> sizes{{least, least + 4}, {least + 1, least + 2}, {least + 3, least + 5}};
  for (InputSize& size : sizes) size = {size.height * multiple, size.width * multiple};
  return sizes;
}

std::vector<Recording> record_at(const Model& model, const std::vector<InputSize>& sizes, torch::ScalarType type) {
  const NetworkInfo info = model.network->info();
  // Small pictures are soon done; on a machine that does other things as well, waiting for threads takes far longer.
  std::optional<HostThreads> one_thread;
  if (sizes.size() > 1) one_thread.emplace(1);
  std::vector<Recording> recordings;
  for (const InputSize& size : sizes) {
    const torch::Tensor input = torch::zeros({1, info.window * info.in_channels, size.height, size.width}, type);
    const auto run = [&](const torch::Tensor& x) { return run_as_onnx(*model.network, x); };
    try {
      recordings.push_back(record_network(run, input, onnx_knows));
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      fail(fmt::format("ONNX export: the network does not run on a picture of {}x{}: {}", size.width, size.height,
                       error.what_without_backtrace()));
    }
  }
  return recordings;
}

onnx::Model convert_recorded(const Model& model, const std::vector<InputSize>& sizes, const OnnxOptions& options) {
  const torch::ScalarType type = options.half ? torch::kHalf : torch::kFloat32;
  OnnxGraph graph(record_at(model, sizes, type), sizes, state_dict(*model.network),
                  {.opset = options.opset, .size = options.size});
  return graph.convert(convert_operation);
}

// Where the network bakes the size in, it is run at the size itself.
onnx::Model convert(const Model& model, const OnnxOptions& options) {
  const std::vector<InputSize> sizes = probed_sizes(model.network->info());
  if (!options.size) return convert_recorded(model, sizes, options);
  try {
    return convert_recorded(model, sizes, options);
  } catch (const Error& error) {
    log::debug(fmt::format("{}: recorded at {}x{}", error.what(), options.size->width, options.size->height));
  }
  return convert_recorded(model, {*options.size}, options);
}

void check_size(const NetworkInfo& info, const OnnxOptions& options) {
  if (!options.size) return;
  const auto [height, width] = *options.size;
  if (height > 0 && width > 0 && height % info.size_multiple == 0 && width % info.size_multiple == 0) return;
  fail_usage(fmt::format("--size {}x{}: the network takes widths and heights that are multiples of {}", width, height,
                         info.size_multiple));
}

}  // namespace

torch::Tensor run_as_onnx(Network& network, const torch::Tensor& input) {
  const NetworkInfo info = network.info();
  if (info.window == 1) return network.forward(input);
  return network.forward(input.view({input.size(0), info.window, -1, input.size(2), input.size(3)}));
}

onnx::Model to_onnx(const Model& model, const OnnxOptions& options) {
  Network& network = *model.network;
  const NetworkInfo info = network.info();
  check_size(info, options);
  network.eval();
  if (options.half) {
    network.to(torch::kHalf);
    require_finite(state_dict(network), "--half: the network in float16");
  }
  // No graph for gradients; but as one may want gradients, nothing is written in place to spare memory.
  for (torch::Tensor& parameter : network.parameters()) parameter.requires_grad_(false);
  const torch::AutoGradMode as_in_training(true);
  onnx::Model converted = convert(model, options);
  converted.name = model.spec.arch;
  converted.metadata = model_metadata(model.spec);
  converted.metadata.erase("format");  // says that a safetensors file is PyTorch's
  converted.metadata.insert(model.metadata.begin(), model.metadata.end());
  converted.metadata.insert({{"arch", model.spec.arch},
                             {"scale", std::to_string(info.scale)},
                             {"color", to_string(model.spec.color)},
                             {"window", std::to_string(info.window)},
                             {"size_multiple", std::to_string(info.size_multiple)}});
  return converted;
}

}  // namespace reelgrad
