#include "reelgrad/engine/inspect_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/weights_file.h"
#include "reelgrad/record/run_folder.h"

namespace reelgrad {
namespace {

using Json = nlohmann::json;

Json tensor_list(const NamedTensors& tensors) {
  Json list = Json::array();
  for (const auto& [name, tensor] : tensors) {
    list.push_back({{"name", name}, {"dtype", dtype_name(tensor)}, {"shape", tensor.sizes().vec()}});
  }
  return list;
}

// Fills in what the network is; a file of an architecture that we do not have is still worth listing.
void describe_network(const std::filesystem::path& file, Json& json) {
  try {
    const Model model = load_model(file);
    const NetworkInfo info = model.network->info();
    std::int64_t parameters = 0;
    for (const auto& [name, tensor] : state_dict(*model.network)) parameters += tensor.numel();
    json["arch"] = model.spec.arch;
    json["scale"] = model.spec.scale;
    json["window"] = model.spec.window;
    json["color"] = to_string(model.spec.color);
    json["options"] = model.spec.options;
    json["parameters"] = parameters;
    json["receptive_radius_px"] = info.receptive_radius_px;
    json["size_multiple"] = info.size_multiple;
    if (!json.contains("tensors")) json["tensors"] = tensor_list(state_dict(*model.network));
  } catch (const Error& error) {
    json["arch"] = nullptr;
    json["problem"] = error.what();
  }
}

Json model_json(const std::filesystem::path& file) {
  Json json;
  json["file"] = file.string();
  json["bytes"] = std::filesystem::file_size(file);
  if (!is_torchscript(file)) {
    const WeightsFile weights = read_weights(file);
    json["tensors"] = tensor_list(weights.tensors);
    json["metadata"] = weights.metadata;
  }
  describe_network(file, json);
  return json;
}

Json checkpoint_list(const std::filesystem::path& run_folder) {
  Json list = Json::array();
  for (const CheckpointInfo& checkpoint : list_checkpoints(run_folder)) {
    list.push_back({{"path", checkpoint.path.string()},
                    {"step", checkpoint.step},
                    {"best", checkpoint.best},
                    {"damage", checkpoint.damage}});
  }
  return list;
}

}  // namespace

std::string inspect_model(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(path)) fail(fmt::format("{}: there is no such file or folder", path.string()));
  Json json;
  if (fs::is_regular_file(path)) {
    json["kind"] = "model";
  } else if (fs::exists(path / "checkpoints")) {
    json["kind"] = "run";
    json["checkpoints"] = checkpoint_list(path);
  } else {
    json["kind"] = "checkpoint";
  }
  json["path"] = path.string();
  try {
    json.update(model_json(find_model_file(path)));
  } catch (const Error& error) {
    if (json["kind"] != "run") throw;
    json["problem"] = error.what();  // the list says which checkpoints are good
  }
  return json.dump(2);
}

}  // namespace reelgrad
