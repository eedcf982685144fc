#include "reelgrad/engine/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/torch_file.h"
#include "reelgrad/record/run_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using Texts = std::map<std::string, std::string>;

struct Format {
  std::string_view extension;
  void (*write)(const fs::path& path, const NamedTensors& tensors, const Texts& metadata);
};
constexpr std::array kFormats{
    Format{".safetensors", write_safetensors},
    Format{".pth", write_torch_file},
};

const Format& format_of(const fs::path& output) {
  const auto* row = std::ranges::find(kFormats, output.extension().string(), &Format::extension);
  if (row != kFormats.end()) return *row;
  std::string known;
  for (const Format& format : kFormats) known += fmt::format("{}{}", known.empty() ? "" : " or ", format.extension);
  fail_usage(fmt::format("-o {}: a model is exported as {}", output.string(), known));
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

}  // namespace

void export_model(const ExportRequest& request) {
  const Format& format = format_of(request.output);
  const fs::path file = find_model_file(request.model);
  const Model model = load_model(file);
  const NamedTensors weights = state_dict(*model.network);
  format.write(request.output, request.half ? halved(weights, file) : weights, metadata_of(model));
  log::info(fmt::format("wrote {}: {}, scale {}, {}", request.output.string(), model.spec.arch, model.spec.scale,
                        request.half ? "float16" : "float32"));
}

}  // namespace reelgrad
