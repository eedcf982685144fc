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
      .add_option("--overlap", request.overlap_px,
                  "Input pixels that tiles share; -1: as many as the network can see, so that no seam can show")
      ->check(CLI::Range(-1, 4096))
      ->capture_default_str();
  command.add_option("--matrix-in", request.overrides.matrix_in, "Overrides _Matrix: 709, 170m, 470bg, 2020ncl, …")
      ->capture_default_str();
  command.add_option("--range-in", request.overrides.range_in, "Overrides _Range: limited or full")
      ->capture_default_str();
  command.add_option("--chromaloc-in", request.overrides.chromaloc_in, "Overrides _ChromaLocation: left, center, …")
      ->capture_default_str();
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
