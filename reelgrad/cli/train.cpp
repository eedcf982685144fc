#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"

namespace reelgrad::cli {
namespace {

struct TrainArguments {
  std::filesystem::path config;
  std::vector<std::string> settings, args;
  bool resume = false, fresh = false;
  std::optional<std::int64_t> stop_at;
};

// "  loss 0.01230 (charbonnier 0.01000, ssim 0.00230)"; on a card nothing before the first record.
std::string losses_text(const TrainProgress& now) {
  if (!std::isfinite(now.loss)) return {};
  std::string terms;
  for (const auto& [name, value] : now.losses) {
    terms += fmt::format("{}{} {:.5f}", terms.empty() ? " (" : ", ", name, value);
  }
  return fmt::format("  loss {:.5f}{}", now.loss, terms.empty() ? terms : terms + ")");
}

// "31.20 dB PSNR", "0.9123 SSIM of Y'", "0.1234 LPIPS"
std::string score_text(const std::string& name, double score) {
  if (name == "lpips" || name == "dists") return fmt::format("{:.4f} {}", -score, name == "lpips" ? "LPIPS" : "DISTS");
  const char* of = name.ends_with("_y") ? " of Y'" : "";
  return name.starts_with("psnr") ? fmt::format("{:.2f} dB PSNR{}", score, of)
                                  : fmt::format("{:.4f} SSIM{}", score, of);
}

class TrainProgressLine : public Observer {
 public:
  bool stop_requested() override { return reelgrad::stop_requested(); }
  void status(const std::string& text) override { progress_.update(text); }
  void train_progress(const TrainProgress& now) override {
    std::string line = fmt::format("step {}/{}", now.step, now.steps);
    line += losses_text(now);
    if (std::isfinite(now.discriminator_real))
      line += fmt::format("  D real {:+.2f} fake {:+.2f}", now.discriminator_real, now.discriminator_fake);
    line += fmt::format("  {:.1f} it/s", now.steps_per_second);
    if (now.steps_per_second > 0) {
      line +=
          fmt::format("  {} left", format_duration(static_cast<double>(now.steps - now.step) / now.steps_per_second));
    }
    if (now.data_wait_share >= 0.01) line += fmt::format("  data wait {:.0f}%", 100 * now.data_wait_share);
    if (now.memory_mb > 0) line += fmt::format("  GPU {} MiB", now.memory_mb);
    progress_.update(line);
  }

 private:
  console::Progress progress_;
};

RunMode run_mode(const TrainArguments& arguments) {
  if (arguments.resume) return RunMode::resume;
  return arguments.fresh ? RunMode::fresh : RunMode::start;
}

void override_args(std::vector<ScriptConfig>& scripts, const std::map<std::string, std::string>& args) {
  for (ScriptConfig& script : scripts) {
    for (const auto& [name, value] : args) script.args.insert_or_assign(name, value);
  }
}

void train(const TrainArguments& arguments) {
  TrainRequest request;
  request.config = load_config(arguments.config, arguments.settings);
  request.mode = run_mode(arguments);
  request.stop_at = arguments.stop_at;
  override_args(request.config.data.script, parse_args(arguments.args));
  override_args(request.config.validation.script, parse_args(arguments.args));

  TrainResult result;
  {
    TrainProgressLine progress;
    warn_of_left_out_card(request.config.run.device);
    engine(request.config.run.deterministic).train(request, progress, result).raise();
  }
  log::info(fmt::format("{} at step {}: {}", result.interrupted ? "interrupted" : "done", result.step,
                        result.run_folder.string()));
  if (result.best_score) {
    log::info(fmt::format("best: {} at step {}", score_text(best_measure(request.config), *result.best_score),
                          result.best_step));
  }
  if (result.interrupted) {
    throw Error(ErrorKind::interrupted, result.step > 0 ? "interrupted; a checkpoint was saved, go on with --resume"
                                                        : "interrupted before the first step");
  }
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a network as a config file says");
  command->footer(
      "\nThe config's data.script is a .vpy whose output 0 is the target and output 1 the input, or\n"
      "its data.pairs two folders of images, e.g.\n"
      "  reelgrad train sr2x.toml --set run.steps=5000 --set optimizer.lr=1e-4\n"
      "A run is a folder (run.dir): config.toml, log.txt, metrics.jsonl, checkpoints/, preview/. Ctrl-C saves a\n"
      "checkpoint and exits with 130; --resume goes on from it. Every key: docs/config.md.\n"
      "A network of your own, from PyTorch or in C++: model.arch = \"torchscript\" or \"module\", docs/networks.md.");
  command->add_option("CONFIG", arguments->config, "Config file (.toml)")->required();
  command->add_option("--set", arguments->settings, "Override a key of the config (repeatable)")
      ->type_name("SECTION.KEY=VALUE");
  add_args_option(*command, arguments->args);
  auto* resume = command->add_flag("--resume", arguments->resume, "Go on with the run in the run folder");
  command->add_flag("--fresh", arguments->fresh, "Set an older run of the same folder aside and start anew")
      ->excludes(resume);
  command->add_option("--stop-at", arguments->stop_at, "Stop at step N with a checkpoint, schedule unchanged")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
      ->type_name("N");
  command->callback([arguments] { train(*arguments); });
}

}  // namespace reelgrad::cli
