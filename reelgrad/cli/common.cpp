#include "reelgrad/cli/common.h"

#include <fmt/format.h>

#include <cstdlib>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/doctor/missing_card.h"
#include "reelgrad/doctor/torch/torch_install.h"

namespace reelgrad::cli {

void add_args_option(CLI::App& command, std::vector<std::string>& args) {
  command.add_option("--arg", args, "Set a variable in the .vpy script (repeatable)")->type_name("NAME=VALUE");
}

std::map<std::string, std::string> parse_pairs(const std::vector<std::string>& pairs, const char* option) {
  std::map<std::string, std::string> parsed;
  for (const std::string& pair : pairs) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) fail_usage(fmt::format("{} {}: expected NAME=VALUE", option, pair));
    parsed[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return parsed;
}

std::map<std::string, std::string> parse_args(const std::vector<std::string>& args) {
  return parse_pairs(args, "--arg");
}

Script open_clip_argument(const ClipArgument& clip, const std::optional<CardId>& card) {
  console::Progress progress;
  return open_named_clip(
      clip.path,
      {.args = clip.args, .on_progress = [&](const std::string& text) { progress.update(text); }, .card = card});
}

void refuse_output_over_input(const std::filesystem::path& output, const std::filesystem::path& clip) {
  std::error_code ignored;
  const bool same = std::filesystem::equivalent(clip, output, ignored);
  const bool one_of_its_images =
      std::filesystem::exists(output, ignored) && std::filesystem::is_directory(clip, ignored) &&
      std::filesystem::equivalent(clip, std::filesystem::absolute(output).parent_path(), ignored);
  if (!same && !one_of_its_images) return;
  fail_usage(fmt::format("-o {}: is {} that is read; write to another file", output.string(),
                         same ? "the clip" : "an image of the clip"));
}

namespace {

int overlap_of(const std::string& text) {
  if (const auto overlap = parse_overlap(text)) return *overlap;
  throw CLI::ValidationError("--overlap", fmt::format("{} is none of auto, exact, 0 to {}", text, kMostOverlap_px));
}

}  // namespace

void add_restore_options(CLI::App& command, RestoreRequest& request) {
  command.add_option("--device", request.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--precision", request.precision, "auto (fp16 on a card, fp32 on the CPU), fp32, fp16 or bf16")
      ->check(CLI::IsMember({"auto", "fp32", "fp16", "bf16"}))
      ->capture_default_str();
  command
      .add_option("--tile", request.tile_px, "Side of a tile in input pixels; 0: whole frames while memory suffices")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--overlap", [&request](const std::string& text) { request.overlap_px = overlap_of(text); },
          "Input pixels that tiles share; auto: the fewest that keep them within half an 8-bit code of the whole "
          "frame, measured once a model; exact: as far as the network can see")
      ->type_name("N|auto|exact")
      ->default_str("auto");
  command.add_option("--streams", request.streams, "Frames that are restored at a time; 0: chosen")
      ->check(CLI::Range(0, 32))
      ->capture_default_str();
  command.add_option("--vram-mb", request.vram_mb, "Memory of the card to use at most, in MB; 0: what is free")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->capture_default_str();
  command
      .add_option("--strength", request.strength,
                  "How much of the network's picture is taken: 0 is the input (enlarged by bicubic), 1 all of it")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_flag("--ensemble", request.ensemble,
                   "The mean over the picture's 8 flips and turns: a little better, 8 times slower");
  command
      .add_option("--sigma", request.sigma,
                  "Noise level for networks that take one: standard deviation in 8-bit codes [the model's own]")
      ->check(CLI::Range(0.0, 255.0));
  command.add_flag_callback(
      "--dither", [&request] { request.dither = Dither::ordered; }, "Ordered dither where samples are rounded");
  command.add_option("--matrix-in", request.overrides.matrix_in, "Overrides _Matrix: 709, 170m, 470bg, 2020ncl, …")
      ->capture_default_str();
  command.add_option("--range-in", request.overrides.range_in, "Overrides _Range: limited or full")
      ->capture_default_str();
  command.add_option("--chromaloc-in", request.overrides.chromaloc_in, "Overrides _ChromaLocation: left, center, …")
      ->capture_default_str();
}

void add_window_options(CLI::App& command, WindowOptions& windows) {
  static const std::map<std::string, WindowEnds> kEnds{{"repeat", WindowEnds::repeat}, {"mirror", WindowEnds::mirror}};
  command
      .add_option_function<std::string>(
          "--window-ends", [&windows](const std::string& name) { windows.ends = kEnds.at(name); },
          "Of networks that see several frames, what stands beyond a clip's or scene's ends: repeat its first or last "
          "frame, or mirror the frames before it")
      ->check(CLI::IsMember({"repeat", "mirror"}))
      ->default_str("repeat");
  command.add_flag_callback(
      "--no-scene-cuts", [&windows] { windows.scene_cuts = false; },
      "Look beyond scene cuts, which frames of a script may be marked with (_SceneChangePrev, _SceneChangeNext)");
}

void warn_of_left_out_card(const std::string& device) {
  if (device != "auto") return;
  const std::string why = why_card_is_left_out();
  if (!why.empty()) log::warning(fmt::format("the processor computes, not the NVIDIA card: {}", why));
}

Engine& engine(bool deterministic) {
  // cuBLAS reads its workspace setting once, before the first call.
  if (deterministic) set_environment_default("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  // torch's allocator reads its settings once: growing segments leave less memory in pieces. What the user set stays.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr) {
    set_environment_default("PYTORCH_ALLOC_CONF", "expandable_segments:True");
  }
  return open_engine([](log::Level level, std::string_view message) { log::write(level, message); });
}

nlohmann::json to_json(const QualityNumbers& quality) {
  return {{"psnr_rgb", quality.psnr_rgb},
          {"psnr_y", quality.psnr_y},
          {"ssim_rgb", quality.ssim_rgb},
          {"ssim_y", quality.ssim_y}};
}

bool FrameProgress::stop_requested() {
  return reelgrad::stop_requested();
}
void FrameProgress::status(const std::string& text) {
  progress_.update(text);
}
void FrameProgress::frames_done(std::int64_t done, std::int64_t total) {
  progress_.update(what_, done, total, "fps");
}

WorkFolder::WorkFolder(const std::string& purpose) {
  std::string pattern = (std::filesystem::temp_directory_path() / ("reelgrad-" + purpose + "-XXXXXX")).string();
  if (!mkdtemp(pattern.data())) fail(fmt::format("{}: no folder can be made there", pattern));
  path_ = pattern;
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string find_python(const std::string& asked) {
  if (!asked.empty()) return find_program(asked);
  if (const char* variable = std::getenv("REELGRAD_PYTHON")) return find_program(variable);
  const auto torch = find_torch();
  if (!torch) return {};
  const auto prefix = torch->dir / ".." / ".." / ".." / "..";  // of lib/python3.12/site-packages/torch
  return find_program((prefix / "bin" / "python3").lexically_normal().string());
}

}  // namespace reelgrad::cli
