#include <fmt/format.h>

#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/templates.h"

namespace reelgrad::cli {
namespace {

namespace fs = std::filesystem;

struct InitArguments {
  std::string task = "sr";
  fs::path folder, clip;
};

// The first line that starts with `start` becomes `replacement`.
std::string replace_line(std::string text, const std::string& start, const std::string& replacement) {
  const std::size_t begin = text.rfind(start, 0) == 0 ? 0 : text.find("\n" + start) + 1;
  if (begin == 0 && text.rfind(start, 0) != 0) return text;
  return text.replace(begin, text.find('\n', begin) - begin, replacement);
}

void init(const InitArguments& arguments) {
  const std::string example_name = arguments.task == "sr" ? "sr2x" : arguments.task;
  const fs::path script = arguments.folder / "train.vpy";
  const fs::path config = arguments.folder / "train.toml";
  for (const fs::path& file : {script, config}) {
    if (fs::exists(file)) fail_usage(fmt::format("{}: already there; init overwrites nothing", file.string()));
  }
  if (!arguments.clip.empty() && !fs::is_regular_file(arguments.clip)) {
    fail_usage(fmt::format("--clip {}: {}", arguments.clip.string(),
                           fs::exists(arguments.clip) ? "not a video file" : "no such file"));
  }

  std::string script_text(example(example_name + ".vpy"));
  if (!arguments.clip.empty()) {
    script_text = replace_line(
        script_text, "CLIP = ", "CLIP = " + string_literal(fs::absolute(arguments.clip).lexically_normal().string()));
  }
  const std::string run_name =
      fs::absolute(arguments.folder / ".").lexically_normal().parent_path().filename().string();
  std::string config_text(example(example_name + ".toml"));
  config_text = replace_line(config_text, "script = ", "script = \"train.vpy\"");
  config_text = replace_line(config_text, "name = ", "name = " + string_literal(run_name));

  std::error_code error;
  fs::create_directories(arguments.folder, error);
  if (error) fail(fmt::format("{}: cannot be made: {}", arguments.folder.string(), error.message()));
  write_file_atomically(script, script_text);
  write_file_atomically(config, config_text);
  log::info(fmt::format("wrote {} and {}", script.string(), config.string()));
  if (arguments.clip.empty()) log::info(fmt::format("name your video in {} (the line CLIP = …)", script.string()));
  if (arguments.task == "sr-gan") {
    log::info(
        fmt::format("it trains as it is; better with a network of a first stage (model.pretrained) and VGG19's "
                    "weights (loss.perceptual): see the head of {}",
                    config.string()));
  }
  log::info(fmt::format("next: reelgrad train {}", config.string()));
}

}  // namespace

void add_init(CLI::App& app) {
  auto arguments = std::make_shared<InitArguments>();
  CLI::App* command = app.add_subcommand("init", "Write a commented script and config to start from");
  command->footer(
      "\nTasks: sr (2x super-resolution), sr-gan (4x, with a discriminator), denoise, deblock. The script makes the "
      "input\n"
      "from your clip (smaller, noisy, or compressed), so a good clip is all you need; sr-gan also names files that\n"
      "help:\n"
      "  reelgrad init --task denoise --clip film.mkv my-denoise && reelgrad train my-denoise/train.toml");
  command->add_option("--task", arguments->task, "sr, sr-gan, denoise or deblock")
      ->check(CLI::IsMember({"sr", "sr-gan", "denoise", "deblock"}))
      ->capture_default_str();
  command->add_option("--clip", arguments->clip, "Your video")->type_name("FILE");
  command->add_option("DIR", arguments->folder, "Folder to write train.vpy and train.toml to")->required();
  command->callback([arguments] { init(*arguments); });
}

}  // namespace reelgrad::cli
