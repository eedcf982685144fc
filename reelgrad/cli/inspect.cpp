#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/model_file.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/doctor/card/driver.h"

namespace reelgrad::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct InspectArguments {
  ClipArgument file;
  std::vector<std::string> args;
  std::string arch;
  std::vector<std::string> options;  // of arch
  bool json = false;
};

// A file of weights, whatever its name, a checkpoint or a run folder; everything else is taken for a clip.
bool is_model(const fs::path& path) {
  if (fs::is_directory(path)) {
    return fs::exists(path / "checkpoints") || fs::exists(path / "model.safetensors") ||
           fs::exists(path / "state.json");
  }
  if (model_file_kind(path) != ModelFileKind::other) return true;
  const std::string extension = path.extension().string();  // a damaged one
  return extension == ".safetensors" || extension == ".pth" || extension == ".pt" || extension == ".ckpt";
}

json describe_color(const ColorProps& color) {
  json described = json::object();
  const auto add = [&](const char* name, int value) {
    if (value >= 0) described[name] = value;
  };
  add("_Matrix", color.matrix);
  add("_Range", color.range);
  add("_ChromaLocation", color.chroma_location);
  add("_Transfer", color.transfer);
  add("_Primaries", color.primaries);
  return described;
}

json describe_output(int index, const Clip& clip) {
  const ClipInfo& info = clip.info();
  return {{"output", index},
          {"format", info.format.name()},
          {"width", info.width},
          {"height", info.height},
          {"frames", info.frames},
          {"fps", info.fps.num == 0 ? "variable" : fmt::format("{}/{}", info.fps.num, info.fps.den)},
          {"props", describe_color(clip.frame(0).view().color)}};
}

// The card that commands take, or why there is none.
std::optional<CardId> first_card(std::string& why_not) {
  Facts facts;
  probe_driver(facts);
  why_not = facts.driver.error.empty() ? "no CUDA card" : "no CUDA card: " + facts.driver.error;
  if (facts.devices.empty()) return std::nullopt;
  const auto card = parse_card(facts.devices.front().uuid);
  why_not = card ? "" : "the driver does not say the card's UUID";
  return card;
}

// Which way frames come to training, and why not the other.
json describe_frames(const Script& script, const std::string& no_card) {
  json first;
  std::vector<std::string> each;
  bool alike = true;
  for (int index : script.outputs()) {
    const FramePath& path = script.output(index)->frame_path();
    const std::string& why = no_card.empty() ? path.why : no_card;
    const json way = {{"path", path.gpu ? "gpu" : "cpu"}, {"why", why}};
    if (each.empty()) first = way;
    alike = alike && way == first;
    each.push_back(fmt::format("output {}: {}, {}", index, path.gpu ? "gpu" : "cpu", why));
  }
  if (!alike) first = {{"path", "mixed"}, {"why", join(each, "; ")}};
  return first;
}

json describe_clip(const ClipArgument& file) {
  std::string no_card;
  const std::optional<CardId> card = first_card(no_card);
  const Script script = open_clip_argument(file, card);
  json outputs = json::array();
  for (int index : script.outputs()) outputs.push_back(describe_output(index, *script.output(index)));
  const char* kind = script.is_script() ? "script" : fs::is_directory(file.path) ? "images" : "video";
  return {
      {"kind", kind}, {"path", file.path.string()}, {"outputs", outputs}, {"frames", describe_frames(script, no_card)}};
}

json describe_model(const fs::path& path) {
  InspectResult result;
  engine().inspect_model(path, result).raise();
  return json::parse(result.json);
}

json describe_architecture(const InspectArguments& arguments) {
  InspectResult result;
  engine().inspect_architecture(arguments.arch, parse_pairs(arguments.options, "--set"), result).raise();
  return json::parse(result.json);
}

void print_value(const json& value, int indent);

void print_entry(const std::string& label, const json& value, int indent) {
  fmt::print("{:{}}{}:", "", indent, label);
  print_value(value, indent + 2);
}

void print_value(const json& value, int indent) {
  if (!value.is_structured()) {
    fmt::print(" {}\n", value.is_string() ? value.get<std::string>() : value.dump());
    return;
  }
  fmt::print("\n");
  if (value.is_object()) {
    for (const auto& [key, entry] : value.items()) print_entry(key, entry, indent);
    return;
  }
  for (std::size_t i = 0; i < value.size(); ++i) print_entry(fmt::format("[{}]", i), value[i], indent);
}

void print(const json& described, bool as_json) {
  if (as_json) {
    fmt::print("{}\n", described.dump(2));
    return;
  }
  for (const auto& [key, value] : described.items()) print_entry(key, value, 0);
}

json describe_file(const ClipArgument& file) {
  if (!fs::exists(file.path)) fail(fmt::format("{}: no such file or folder", file.path.string()));
  return is_model(file.path) ? describe_model(file.path) : describe_clip(file);
}

void inspect(InspectArguments& arguments) {
  if (arguments.arch.empty() == arguments.file.path.empty()) fail_usage("inspect: name a FILE or --arch, one of them");
  if (arguments.arch.empty() && !arguments.options.empty())
    fail_usage("--set: the options of --arch, which is not given");
  arguments.file.args = parse_args(arguments.args);
  json described = arguments.arch.empty() ? describe_file(arguments.file) : describe_architecture(arguments);
  // What such a file holds is worth knowing, and still it is no model. Of a run with a damaged checkpoint the list
  // tells.
  const bool is_no_model = described.contains("arch") && described["arch"].is_null();
  const std::string problem = is_no_model ? described["problem"].get<std::string>() : "";
  if (is_no_model && !arguments.json) described.erase("problem");  // the error says it
  print(described, arguments.json);
  if (is_no_model) fail(problem);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand("inspect",
                                         "Say what is in a clip, script, model, checkpoint or run folder, or what an "
                                         "architecture costs");
  command->footer(
      "\nExamples:\n"
      "  reelgrad inspect 4x_downloaded.pth\n"
      "  reelgrad inspect --arch swinir --set features=180 --set \"depths=[6, 6, 6, 6, 6, 6]\" --set "
      "heads=6,6,6,6,6,6\n"
      "Of weights that fit no architecture, it prints what they are, names the three nearest architectures with the "
      "first\n"
      "key that differs, and ends with 1.");
  command->add_option("FILE", arguments->file.path,
                      "Video, .vpy, image folder, .safetensors, .pth, .pt, .ckpt, checkpoint or run folder");
  command
      ->add_option("--arch", arguments->arch,
                   "Instead of a file: an architecture's options, parameters, operations and reach")
      ->type_name("NAME");
  command->add_option("--set", arguments->options, "With --arch: one of its options, or scale; may be repeated")
      ->type_name("K=V");
  add_args_option(*command, arguments->args);
  command->add_flag("--json", arguments->json, "Machine-readable result on stdout");
  command->callback([arguments] { inspect(*arguments); });
}

}  // namespace reelgrad::cli
