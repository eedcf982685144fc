#include "reelgrad/engine/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/onnx_export.h"
#include "reelgrad/nn/torch_file.h"
#include "reelgrad/record/run_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::map<std::string, std::string>;

struct Format {
  std::string_view extension;
  void (*write)(const ExportRequest& request, const Model& model);
};
constexpr std::string_view kOnnx = ".onnx";

void write_values(const fs::path& path, const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.to(torch::kFloat32).contiguous();
  write_file_atomically(path, {static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
}

// Noise of the file's size, or of three.
void write_check_cases(const fs::path& folder, const Model& model, const std::optional<InputSize>& size) {
  const torch::NoGradGuard no_grad;
  const NetworkInfo info = model.network->info();
  std::vector<InputSize> sizes;
  if (size) {
    sizes.push_back(*size);
  } else {
    for (const auto& [height, width] : {InputSize{48, 64}, InputSize{37, 23}, InputSize{16, 90}}) {
      const auto fitting = [&](std::int64_t side) {
        return (side + info.size_multiple - 1) / info.size_multiple * info.size_multiple;
      };
      sizes.push_back({fitting(height), fitting(width)});
    }
  }
  at::Generator noise = at::detail::createCPUGenerator(1);
  Json cases = Json::array();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const torch::Tensor input =
        torch::rand({1, info.window * info.in_channels, sizes[i].height, sizes[i].width}, noise);
    const torch::Tensor output = run_as_onnx(*model.network, input);
    write_values(folder / fmt::format("input{}", i), input);
    write_values(folder / fmt::format("output{}", i), output);
    cases.push_back({{"input", input.sizes().vec()}, {"output", output.sizes().vec()}});
  }
  write_file_atomically(folder / "cases.json", cases.dump());
}

void write_onnx(const ExportRequest& request, const Model& model) {
  OnnxOptions options{.half = request.half};
  if (request.opset != 0) options.opset = request.opset;
  if (request.height != 0) options.size = InputSize{request.height, request.width};
  if (!request.check_folder.empty()) write_check_cases(request.check_folder, model, options.size);
  onnx::write_model(request.output, to_onnx(model, options));
}

// A weight beyond what float16 holds would become infinite.
NamedTensors halved(const NamedTensors& tensors, const fs::path& model) {
  NamedTensors halves;
  for (const auto& [name, tensor] : tensors) {
    halves.emplace_back(name, tensor.is_floating_point() ? tensor.to(torch::kHalf) : tensor);
  }
  require_finite(halves, fmt::format("--half: {}", model.string()));
  return halves;
}

// What the file said of itself goes along; what it said of its network is said by us.
Texts metadata_of(const Model& model) {
  Texts metadata = model_metadata(model.spec);
  metadata.insert(model.metadata.begin(), model.metadata.end());
  return metadata;
}

template <auto write>
void write_weights(const ExportRequest& request, const Model& model) {
  const NamedTensors weights = state_dict(*model.network);
  write(request.output, request.half ? halved(weights, request.model) : weights, metadata_of(model));
}

constexpr std::array kFormats{
    Format{".safetensors", write_weights<write_safetensors>},
    Format{".pth", write_weights<write_torch_file>},
    Format{kOnnx, write_onnx},
};

const Format& format_of(const fs::path& output) {
  const auto* row = std::ranges::find(kFormats, output.extension().string(), &Format::extension);
  if (row != kFormats.end()) return *row;
  std::string known;
  for (const Format& format : kFormats) known += fmt::format("{}{}", known.empty() ? "" : " or ", format.extension);
  fail_usage(fmt::format("-o {}: a model is exported as {}", output.string(), known));
}

}  // namespace

void export_model(const ExportRequest& request) {
  const Format& format = format_of(request.output);
  const fs::path file = find_model_file(request.model);
  const Model model = load_model(file);
  format.write(request, model);
  log::info(fmt::format("wrote {}: {}, scale {}, {}", request.output.string(), model.spec.arch, model.spec.scale,
                        request.half ? "float16" : "float32"));
}

}  // namespace reelgrad
