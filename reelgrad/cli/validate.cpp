#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"

namespace reelgrad::cli {
namespace {

struct ValidateArguments {
  ValidateRequest request;
  std::vector<std::string> args;
  bool json = false;
};

void print_row(const std::string& name, const QualityNumbers& quality) {
  fmt::print("  {:<12} {:>9.3f} {:>9.3f} {:>10.5f} {:>9.5f}\n", name, quality.psnr_rgb, quality.psnr_y,
             quality.ssim_rgb, quality.ssim_y);
}

void print_table(const ValidateResult& result) {
  for (const ValidatedClip& clip : result.clips) {
    fmt::print("{} ({} frames)\n  {:<12} {:>9} {:>9} {:>10} {:>9}\n", clip.name, clip.frames, "", "PSNR RGB", "PSNR Y",
               "SSIM RGB", "SSIM Y");
    print_row("network", clip.ours);
    print_row("bicubic", clip.bicubic);
  }
  if (result.clips.size() > 1) {
    fmt::print("all clips\n");
    print_row("network", result.ours);
    print_row("bicubic", result.bicubic);
  }
  fmt::print("{:+.2f} dB over bicubic (PSNR RGB)\n", result.ours.psnr_rgb - result.bicubic.psnr_rgb);
}

nlohmann::json as_json(const ValidateResult& result) {
  nlohmann::json clips = nlohmann::json::array();
  for (const ValidatedClip& clip : result.clips) {
    clips.push_back({{"name", clip.name},
                     {"frames", clip.frames},
                     {"ours", to_json(clip.ours)},
                     {"bicubic", to_json(clip.bicubic)}});
  }
  return {{"ours", to_json(result.ours)}, {"bicubic", to_json(result.bicubic)}, {"clips", clips}};
}

void validate(ValidateArguments& arguments) {
  ValidateRequest& request = arguments.request;
  request.clip.args = parse_args(arguments.args);
  if (request.inputs.empty() && std::filesystem::is_directory(request.clip.path)) {
    fail_usage(fmt::format("{}: a folder of images is a folder of targets: name the folder of their inputs, --input LR",
                           request.clip.path.string()));
  }
  ValidateResult result;
  {
    FrameProgress progress("validated frame");
    engine().validate(request, progress, result).raise();
  }
  if (arguments.json) {
    fmt::print("{}\n", as_json(result).dump(2));
  } else {
    print_table(result);
  }
}

}  // namespace

void add_validate(CLI::App& app) {
  auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* command = app.add_subcommand("validate", "Measure a network on a training script: PSNR and SSIM");
  command->footer(
      "\nCLIP is a .vpy with output 0 = target and output 1 = input, or a folder of target images, with --input the\n"
      "folder of their inputs. \"bicubic\" is VapourSynth's resize.Bicubic of the input. Y is BT.601 luma, as the\n"
      "super-resolution literature measures.");
  command->add_option("MODEL", arguments->request.restore.model, kModelHelp)->required();
  command->add_option("CLIP", arguments->request.clip.path, "A training script (.vpy) or a folder of images")
      ->required();
  command->add_option("--input", arguments->request.inputs, "With a folder of target images: the folder of inputs")
      ->type_name("DIR");
  command
      ->add_option("--frames", arguments->request.frames,
                   "Only these frames (or images): first:end; \"0.8:\" is the last fifth")
      ->type_name("A:B");
  add_args_option(*command, arguments->args);
  add_restore_options(*command, arguments->request.restore);
  command->add_flag("--json", arguments->json, "Machine-readable result on stdout");
  command->callback([arguments] { validate(*arguments); });
}

}  // namespace reelgrad::cli
