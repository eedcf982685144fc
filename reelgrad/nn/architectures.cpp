#include "reelgrad/nn/architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/nn/discriminators.h"
#include "reelgrad/nn/host_threads.h"
#include "reelgrad/nn/initialisation.h"
#include "reelgrad/nn/recognition.h"
#include "reelgrad/nn/torchscript.h"
#include "reelgrad/nn/user_module.h"
#include "reelgrad/nn/weights_file.h"

// nn/CMakeLists.txt names each file of archs/ to REELGRAD_ARCHITECTURE.
#define REELGRAD_ARCHITECTURE(name)                              \
  namespace reelgrad {                                           \
  std::shared_ptr<Network> make_##name(const NetworkSpec& spec); \
  std::optional<NetworkSpec> detect_##name(const StateShapes&);  \
  }
#include "reelgrad/nn/architecture_list.inc"
#undef REELGRAD_ARCHITECTURE

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

// A network of the user's is known by its file alone.
std::optional<NetworkSpec> detect_none(const StateShapes&) {
  return std::nullopt;
}

constexpr std::array kTable{
#define REELGRAD_ARCHITECTURE(name) Architecture{#name, make_##name, detect_##name},
#include "reelgrad/nn/architecture_list.inc"
#undef REELGRAD_ARCHITECTURE
    Architecture{"torchscript", make_torchscript, detect_none, "file", "network.pt"},
    Architecture{"module", make_user_module, detect_none, "module", "network.so"},
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
  const std::vector<std::string> words = split(choices, '|');
  return std::ranges::find(words, value) != words.end();
}

// `interval`: "1..1024".
bool is_number_in(std::string_view value, std::string_view interval) {
  const auto dots = interval.find("..");
  int low = 0, high = 0, number = 0;
  parse_int(interval.substr(0, dots), low);
  parse_int(interval.substr(dots + 2), high);
  return parse_int(value, number) && number >= low && number <= high;
}

bool is_allowed(const ArchitectureOption& option, const std::string& value) {
  if (option.kind == "file") return !value.empty();
  if (option.kind == "bool") return is_one_of(value, "true|false");
  if (option.kind == "choice") return is_one_of(value, option.allowed);
  const std::vector<std::string> numbers = option.kind == "ints" ? split(value, ',') : std::vector<std::string>{value};
  return std::ranges::all_of(numbers, [&](const std::string& number) { return is_number_in(number, option.allowed); });
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
  if (!full.args.empty() && !entry->takes_args) fail_usage(fmt::format("{} takes no args", spec.arch));
  return full;
}

// What a model file tells of its network.
struct StoredSpec {
  NetworkSpec spec;
  std::string file_hash;  // XXH3-128 of the user's file that the network is in
};

StoredSpec parse_metadata(const std::string& text, const std::string& source) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (const int version = json.at("version"); version > kMetadataVersion) {
      fail(fmt::format("{}: written by a newer reelgrad (metadata version {}, known up to {}): update reelgrad", source,
                       version, kMetadataVersion));
    }
    NetworkSpec spec{.arch = json.at("arch"),
                     .scale = json.at("scale"),
                     .window = json.at("window"),
                     .color = parse_network_color(json.at("color")),
                     .options = json.at("options")};
    if (json.contains("args")) json.at("args").get_to(spec.args);
    return {std::move(spec), json.value("file_xxh3_128", "")};
  } catch (const std::exception& error) {
    fail(fmt::format("{}: its \"reelgrad\" metadata cannot be read: {}", source, error.what()));
  }
}

Recognised recognised(const NamedTensors& state, const std::string& source) {
  if (auto found = recognise(state)) return std::move(*found);
  if (state.empty()) fail(fmt::format("{}: there are no tensors in it", source));
  if (const auto discriminator = recognise_discriminator(state)) {
    fail(fmt::format("{}: {}: it judges pictures and makes none; pretrained in a config's [discriminator] takes it",
                     source, describe(*discriminator)));
  }
  fail(fmt::format("{}: {}", source, describe_unrecognised(state, nearest_architectures(state))));
}

// The file of a user's network that belongs to a model; the places where it may lie are in architectures.h.
fs::path find_network_file(const fs::path& model, const Architecture& row, const std::string& hash) {
  const fs::path folder = fs::absolute(model).parent_path();
  const fs::path kept(row.kept_as);
  const std::array candidates{fs::path(model).replace_extension(kept.extension()), folder / kept,
                              folder.parent_path().parent_path() / kept};
  std::vector<std::string> looked_for;
  for (const fs::path& candidate : candidates) {
    const bool there = fs::is_regular_file(candidate);
    if (there && xxh3_128_hex(candidate) == hash) return candidate;
    looked_for.push_back(candidate.string() + (there ? " (which is another one)" : ""));
  }
  fail(fmt::format(
      "{}: its network (arch = \"{}\") is in a file of its own, which was not found: {}; copy {} of the run "
      "that trained it beside it",
      model.string(), row.name, join(looked_for, ", "), row.kept_as));
}

NetworkSpec stored_spec(const std::string& metadata, const fs::path& file) {
  StoredSpec stored = parse_metadata(metadata, file.string());
  const auto* row = std::ranges::find(kTable, stored.spec.arch, &Architecture::name);
  if (row == kTable.end() || row->file_option.empty()) return std::move(stored.spec);
  const std::string network = find_network_file(file, *row, stored.file_hash).string();
  stored.spec.options.insert_or_assign(std::string(row->file_option), network);
  return std::move(stored.spec);
}

std::shared_ptr<Network> make_stored(const NetworkSpec& spec, const std::string& source) {
  try {
    return make_blank_network(spec);
  } catch (const Error& error) {
    fail(fmt::format("{}: {}", source, error.what()));  // a file's fault, not the command line's
  }
}

// A TorchScript file that comes alone.
Model script_model(const fs::path& file) {
  Model model;
  try {
    model.spec = torchscript_spec(file.string());
    model.network = make_network(model.spec);
  } catch (const Error& error) {
    fail(error.what());  // a file's fault, not the command line's
  }
  model.network->eval();
  require_finite(state_dict(*model.network), file.string());
  log::info(fmt::format("{}: a TorchScript network, scale {}, {}", file.string(), model.spec.scale,
                        to_string(model.spec.color)));
  return model;
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
          .options = config.model.options,
          .args = config.model.args};
}

std::shared_ptr<Network> make_network(const NetworkSpec& spec) {
  const Architecture& row = find_row(spec.arch);
  return row.make(completed(spec));
}

std::shared_ptr<Network> make_blank_network(const NetworkSpec& spec) {
  std::optional<WithoutInitialisation> skipping;
  if (find_row(spec.arch).file_option.empty()) skipping.emplace();
  return make_network(spec);
}

NetworkSpec with_what_is_offered(NetworkSpec spec) {
  const ArchitectureEntry& entry = *find_architecture(spec.arch);
  if (std::ranges::find(entry.scales, spec.scale) == entry.scales.end()) spec.scale = entry.usual_scale();
  for (const ArchitectureOption& option : entry.options) {
    const auto found = spec.options.find(std::string(option.name));
    if (found != spec.options.end() && !is_allowed(option, found->second)) spec.options.erase(found);
  }
  return spec;
}

NetworkSpec measured_spec(NetworkSpec spec, const Network& network) {
  if (spec.arch != "torchscript") return spec;
  const NetworkInfo info = network.info();
  spec.options["size_multiple"] = std::to_string(info.size_multiple);
  spec.options["receptive_radius_px"] = std::to_string(info.receptive_radius_px);
  return spec;
}

fs::path network_file(const NetworkSpec& spec) {
  const Architecture& row = find_row(spec.arch);
  return row.file_option.empty() ? fs::path() : fs::path(spec.options.at(std::string(row.file_option)));
}

NetworkSpec with_file_in(const fs::path& folder, NetworkSpec spec) {
  const Architecture& row = find_row(spec.arch);
  if (!row.file_option.empty()) spec.options[std::string(row.file_option)] = (folder / row.kept_as).string();
  return spec;
}

Model load_model(const std::filesystem::path& file) {
  if (is_torchscript(file)) return script_model(file);
  const std::string source = file.string();
  // Each tensor is soon copied: threads wait for one another longer than that takes.
  const HostThreads one_thread(1);
  WeightsFile stored = read_weights_logged(file);
  require_finite(stored.tensors, source);
  const auto ours = stored.metadata.find("reelgrad");
  Model model;
  if (ours == stored.metadata.end()) {
    Recognised found = recognised(stored.tensors, source);
    model.spec = std::move(found.spec);
    model.network = std::move(found.network);
  } else {
    model.spec = stored_spec(ours->second, file);
    model.network = make_stored(model.spec, source);
  }
  load_strict(*model.network, stored.tensors, source);
  model.network->eval();
  model.metadata = std::move(stored.metadata);
  return model;
}

std::map<std::string, std::string> model_metadata(const NetworkSpec& spec) {
  NetworkSpec full = completed(spec);
  const Architecture& row = find_row(spec.arch);
  std::string file_hash;
  if (!row.file_option.empty()) {
    file_hash = xxh3_128_hex(network_file(spec));
    full.options.erase(std::string(row.file_option));  // a path of this computer
  }
  nlohmann::json json{
      {"version", kMetadataVersion},    {"arch", full.arch},      {"scale", full.scale}, {"window", full.window},
      {"color", to_string(full.color)}, {"options", full.options}};
  if (!file_hash.empty()) json["file_xxh3_128"] = file_hash;
  if (!full.args.empty()) json["args"] = full.args;
  // Other readers ask for "format": the tensors are PyTorch's.
  return {{"format", "pt"}, {"reelgrad", json.dump()}};
}

}  // namespace reelgrad
