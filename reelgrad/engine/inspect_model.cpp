#include "reelgrad/engine/inspect_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/discriminators.h"
#include "reelgrad/nn/network_cost.h"
#include "reelgrad/nn/recognition.h"
#include "reelgrad/nn/weights_file.h"
#include "reelgrad/record/run_folder.h"
#include "reelgrad/restore/overlap_measure.h"

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

void describe_reach(const NetworkInfo& info, Json& json) {
  json["receptive_radius_px"] = info.whole_picture ? Json(nullptr) : Json(info.receptive_radius_px);
  json["size_multiple"] = info.size_multiple;
}

void describe_unrecognised_file(const std::filesystem::path& file, const NamedTensors& tensors, Json& json) {
  const std::vector<Candidate> nearest = nearest_architectures(tensors);
  json["arch"] = nullptr;
  json["problem"] = fmt::format("{}: {}", file.string(), describe_unrecognised(tensors, nearest));
  Json list = Json::array();
  for (const Candidate& candidate : nearest) {
    const auto shape = [](const auto& sizes) { return sizes ? Json(*sizes) : Json(nullptr); };
    list.push_back({{"arch", candidate.spec.arch},
                    {"scale", candidate.spec.scale},
                    {"options", candidate.spec.options},
                    {"fitting", candidate.fitting},
                    {"tensors", candidate.tensors},
                    {"key", candidate.key},
                    {"expected", shape(candidate.expected)},
                    {"found", shape(candidate.found)}});
  }
  json["nearest"] = std::move(list);
}

// The options that the file tells.
void describe_discriminator(const DiscriminatorOptions& options, Json& json) {
  json["kind"] = "discriminator";
  json["net"] = options.net;
  json["channels"] = options.channels;
  json["features"] = options.features;
  json["scales"] = options.scales;
  if (options.net == "patchgan") {
    json["layers"] = options.layers;
    json["norm"] = options.norm;
  }
  if (options.size_px > 0) json["size_px"] = options.size_px;
  json["use"] = "[discriminator] pretrained = \"FILE\" in a config with loss.gan: training goes on from these weights";
}

// Fills in what the network is; a file of an architecture that we do not have is still worth listing.
void describe_network(const std::filesystem::path& file, Json& json) {
  try {
    const Model model = load_model(file);
    std::int64_t parameters = 0;
    for (const auto& [name, tensor] : state_dict(*model.network)) parameters += tensor.numel();
    json["arch"] = model.spec.arch;
    json["scale"] = model.spec.scale;
    json["window"] = model.spec.window;
    json["color"] = to_string(model.spec.color);
    json["options"] = model.spec.options;
    json["parameters"] = parameters;
    describe_reach(model.network->info(), json);
    if (const auto overlap = known_overlap(weights_hash(*model.network))) json["overlap_px"] = *overlap;
    if (!json.contains("tensors")) json["tensors"] = tensor_list(state_dict(*model.network));
  } catch (const Error& error) {
    json["arch"] = nullptr;
    json["problem"] = error.what();
  }
}

void describe_weights(const std::filesystem::path& file, Json& json) {
  const WeightsFile weights = read_weights(file);
  json["tensors"] = tensor_list(weights.tensors);
  json["metadata"] = weights.metadata;
  if (!weights.notes.empty()) json["notes"] = weights.notes;
  if (const auto discriminator = recognise_discriminator(weights.tensors)) {
    return describe_discriminator(*discriminator, json);
  }
  const bool says_what_it_is = weights.metadata.contains("reelgrad") || weights.tensors.empty();
  if (says_what_it_is || recognise(weights.tensors)) return describe_network(file, json);
  describe_unrecognised_file(file, weights.tensors, json);
}

Json model_json(const std::filesystem::path& file) {
  Json json;
  json["file"] = file.string();
  json["bytes"] = std::filesystem::file_size(file);
  if (is_torchscript(file)) {
    describe_network(file, json);
  } else {
    describe_weights(file, json);
  }
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

// As options are kept: "[6, 6]", which is how a config has it, is "6,6".
std::string plain_list(std::string text) {
  std::erase(text, ' ');
  const bool in_brackets = text.size() >= 2 && text.front() == '[' && text.back() == ']';
  return in_brackets ? text.substr(1, text.size() - 2) : text;
}

void bring_to_form(const ArchitectureEntry& entry, std::map<std::string, std::string>& given) {
  std::vector<std::string> names{"scale"};
  for (const ArchitectureOption& option : entry.options) {
    names.emplace_back(option.name);
    const auto found = given.find(names.back());
    if (option.kind == "ints" && found != given.end()) found->second = plain_list(found->second);
  }
  for (const auto& [name, value] : given) {
    if (std::ranges::find(names, name) != names.end()) continue;
    const auto meant = nearest(name, names);
    fail_usage(fmt::format("--set {}={}: {} has no such option ({})", name, value, entry.name,
                           meant ? fmt::format("did you mean \"{}\"?", *meant) : "known: " + join(names, ", ")));
  }
}

// `given` without "scale", which goes into the spec of its own.
NetworkSpec spec_of(const ArchitectureEntry& entry, std::map<std::string, std::string> given) {
  bring_to_form(entry, given);
  NetworkSpec spec{.arch = std::string(entry.name), .scale = entry.usual_scale(), .window = entry.window};
  if (const auto scale = given.extract("scale")) {
    const std::string& text = scale.mapped();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), spec.scale);
    if (error != std::errc() || end != text.data() + text.size())
      fail_usage(fmt::format("{}: scale = \"{}\" is no number", entry.name, text));
  }
  spec.options = std::move(given);
  return spec;
}

Json option_list(const ArchitectureEntry& entry, const std::map<std::string, std::string>& given) {
  Json list = Json::array();
  for (const ArchitectureOption& option : entry.options) {
    const auto found = given.find(std::string(option.name));
    list.push_back({{"name", option.name},
                    {"value", found == given.end() ? std::string(option.default_value) : found->second},
                    {"default", option.default_value},
                    {"allowed", option.allowed},
                    {"help", option.help}});
  }
  return list;
}

}  // namespace

std::string inspect_architecture(const std::string& name, const std::map<std::string, std::string>& options) {
  const ArchitectureEntry* entry = find_architecture(name);
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const ArchitectureEntry& known : architectures()) names.emplace_back(known.name);
    fail_usage(fmt::format("--arch {}: there is no such architecture (known: {})", name, join(names, ", ")));
  }
  const NetworkSpec spec = spec_of(*entry, options);
  Json json{{"kind", "architecture"},
            {"arch", name},
            {"help", entry->help},
            {"scales", entry->scales},
            {"scale", spec.scale},
            {"window", entry->window},
            {"options", option_list(*entry, spec.options)}};
  const bool needs_file = std::ranges::any_of(entry->options, [&](const ArchitectureOption& option) {
    return option.kind == "file" && !spec.options.contains(std::string(option.name));
  });
  if (needs_file) return json.dump(2);  // nothing can be known without it
  const std::shared_ptr<Network> network = make_network(spec);
  const NetworkCost cost = measure_cost(*network);
  json["parameters"] = cost.parameters;
  json["gflops_per_megapixel"] = cost.flops_per_input_pixel / 1000;
  describe_reach(network->info(), json);
  return json.dump(2);
}

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
    const std::filesystem::path weights = find_model_file(path);
    json["weights"] = weights.string();
    json.update(model_json(weights));
  } catch (const Error& error) {
    if (json["kind"] != "run") throw;
    json["problem"] = error.what();  // the list says which checkpoints are good
  }
  return json.dump(2);
}

}  // namespace reelgrad
