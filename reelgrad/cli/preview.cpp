#include <fmt/format.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"

namespace reelgrad::cli {
namespace {

struct PreviewArguments {
  PreviewRequest request;
  std::vector<std::string> args;
};

void preview(PreviewArguments& arguments) {
  arguments.request.clip.args = parse_args(arguments.args);
  if (const std::filesystem::path& output = arguments.request.output; output.extension() != ".png") {
    fail_usage(fmt::format("-o {}: a preview is a .png", output.string()));
  }
  refuse_output_over_input(arguments.request.output, arguments.request.clip.path);
  {
    FrameProgress progress("frame");
    engine().preview(arguments.request, progress).raise();
  }
  log::info(fmt::format("wrote {}", arguments.request.output.string()));
}

}  // namespace

void add_preview(CLI::App& app) {
  auto arguments = std::make_shared<PreviewArguments>();
  CLI::App* command = app.add_subcommand("preview", "One frame side by side: input | bicubic | network | target");
  command->footer("\nThe target is there when CLIP is a training script (outputs 0 and 1).");
  command->add_option("MODEL", arguments->request.restore.model, kModelHelp)->required();
  command->add_option("CLIP", arguments->request.clip.path, "A .vpy script, a video file or a folder of images")
      ->required();
  command->add_option("--frame", arguments->request.frame, "Frame number")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("-o,--output", arguments->request.output, "The .png to write")->required()->type_name("OUT.png");
  add_args_option(*command, arguments->args);
  add_restore_options(*command, arguments->request.restore);
  command->callback([arguments] { preview(*arguments); });
}

}  // namespace reelgrad::cli
