#include "reelgrad/nn/architectures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/nn/compact.h"

namespace reelgrad {
namespace {

constexpr std::array kTable{
    Architecture{"compact", make_compact, detect_compact},
};

constexpr int kMetadataVersion = 1;

std::string known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& row : kTable) names.emplace_back(row.name);
  return join(names, ", ");
}

const Architecture& find_row(const std::string& name) {
  const auto* row = std::ranges::find(kTable, name, &Architecture::name);
  if (row == kTable.end())
    fail_usage(fmt::format("unknown architecture \"{}\" (known: {})", name, known_architectures()));
  return *row;
}

bool parse_int(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_one_of(std::string_view value, std::string_view choices) {
  for (;;) {
    const auto bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

bool is_allowed(const ArchitectureOption& option, const std::string& value) {
  if (option.kind == "bool") return is_one_of(value, "true|false");
  if (option.kind == "choice") return is_one_of(value, option.allowed);
  const auto dots = option.allowed.find("..");
  int low = 0, high = 0, number = 0;
  parse_int(option.allowed.substr(0, dots), low);
  parse_int(option.allowed.substr(dots + 2), high);
  return parse_int(value, number) && number >= low && number <= high;
}

// Defaults filled in, every value checked. The configuration has checked its own; a model file's metadata comes here
// first.
NetworkSpec completed(const NetworkSpec& spec) {
  const ArchitectureEntry* entry = find_architecture(spec.arch);
  TORCH_INTERNAL_ASSERT(entry != nullptr);
  if (std::ranges::find(entry->scales, spec.scale) == entry->scales.end()) {
    fail_usage(fmt::format("{}: scale {} is not offered", spec.arch, spec.scale));
  }
  NetworkSpec full = spec;
  for (const ArchitectureOption& option : entry->options) {
    const auto& value = full.options.emplace(option.name, option.default_value).first->second;
    if (!is_allowed(option, value)) {
      fail_usage(fmt::format("{}: option {} = \"{}\", allowed: {}", spec.arch, option.name, value, option.allowed));
    }
  }
  for (const auto& [name, value] : full.options) {
    if (std::ranges::find(entry->options, name, &ArchitectureOption::name) == entry->options.end()) {
      fail_usage(fmt::format("{}: unknown option \"{}\"", spec.arch, name));
    }
  }
  return full;
}

NetworkSpec parse_metadata(const std::string& text, const std::string& source) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (const int version = json.at("version"); version > kMetadataVersion) {
      fail(fmt::format("{}: written by a newer reelgrad (metadata version {}, known up to {}): update reelgrad", source,
                       version, kMetadataVersion));
    }
    return {.arch = json.at("arch"),
            .scale = json.at("scale"),
            .window = json.at("window"),
            .color = parse_network_color(json.at("color")),
            .options = json.at("options")};
  } catch (const std::exception& error) {
    fail(fmt::format("{}: its \"reelgrad\" metadata cannot be read: {}", source, error.what()));
  }
}

std::optional<NetworkSpec> detect_any(const NamedTensors& state) {
  for (const Architecture& row : kTable) {
    if (auto spec = row.detect(state)) return spec;
  }
  return std::nullopt;
}

std::string first_keys(const NamedTensors& state) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> keys;
  for (const auto& [name, tensor] : state) {
    if (keys.size() == kShown) break;
    keys.push_back(fmt::format("{} [{}]", name, fmt::join(tensor.sizes(), ", ")));
  }
  return fmt::format("{}{}", join(keys, ", "),
                     state.size() > kShown ? fmt::format(", … ({} tensors)", state.size()) : "");
}

NetworkSpec detected_spec(const NamedTensors& state, const std::string& source) {
  auto spec = detect_any(state);
  if (!spec) {
    fail(fmt::format("{}: not a model of a known architecture (known: {}); its tensors: {}", source,
                     known_architectures(), state.empty() ? "none" : first_keys(state)));
  }
  return *spec;
}

}  // namespace

std::span<const Architecture> architecture_table() {
  return kTable;
}

NetworkSpec network_spec(const Config& config) {
  return {.arch = config.model.arch,
          .scale = config.model.scale,
          .window = config.data.window,
          .color = parse_network_color(config.data.color),
          .options = config.model.options};
}

std::shared_ptr<Network> make_network(const NetworkSpec& spec) {
  const Architecture& row = find_row(spec.arch);
  return row.make(completed(spec));
}

Model load_model(const std::filesystem::path& file) {
  const std::string source = file.string();
  const std::string extension = file.extension().string();
  if (extension == ".pth" || extension == ".pt" || extension == ".ckpt") {
    fail(fmt::format("{}: PyTorch's own files are not read by this version; save the model as .safetensors", source));
  }
  SafetensorsFile stored = read_safetensors(file);
  require_finite(stored.tensors, source);
  const auto ours = stored.metadata.find("reelgrad");
  Model model;
  model.spec =
      ours != stored.metadata.end() ? parse_metadata(ours->second, source) : detected_spec(stored.tensors, source);
  try {
    model.network = make_network(model.spec);
  } catch (const Error& error) {
    fail(fmt::format("{}: {}", source, error.what()));  // a file's fault, not the command line's
  }
  load_strict(*model.network, stored.tensors, source);
  model.network->eval();
  model.metadata = std::move(stored.metadata);
  return model;
}

std::map<std::string, std::string> model_metadata(const NetworkSpec& spec) {
  const NetworkSpec full = completed(spec);
  const nlohmann::json json{
      {"version", kMetadataVersion},    {"arch", full.arch},      {"scale", full.scale}, {"window", full.window},
      {"color", to_string(full.color)}, {"options", full.options}};
  // Other readers ask for "format": the tensors are PyTorch's.
  return {{"format", "pt"}, {"reelgrad", json.dump()}};
}

}  // namespace reelgrad
