#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/bench_rows.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/cli/templates.h"

namespace reelgrad::cli {
namespace {

namespace fs = std::filesystem;

struct BenchArguments {
  fs::path config;
  std::vector<std::string> settings;
  std::int64_t steps = 600;
  int rounds = 3;
  std::string python;
  bool json = false;
};

// One round of ours.
struct OurRound {
  double steps_per_second = 0, seconds_to_first_step = 0;
  std::optional<double> replay_seconds;  // of the step's graph alone; nullopt: steps are not captured
};

// CONFIG, or the example in `folder`.
fs::path config_file(const BenchArguments& arguments, const fs::path& folder) {
  if (!arguments.config.empty()) return arguments.config;
  write_file_atomically(folder / "sr2x.toml", example("sr2x.toml"));
  write_file_atomically(folder / "sr2x.vpy", example("sr2x.vpy"));
  return folder / "sr2x.toml";
}

// The configuration as it is, but for a short run that neither validates nor saves before its end.
Config bench_config(const BenchArguments& arguments, const fs::path& file, const fs::path& folder) {
  Config config = load_config(file, arguments.settings);
  config.run.dir = folder / "run";
  config.run.steps = arguments.steps;
  config.run.log_every = std::max<std::int64_t>(1, arguments.steps / 6);
  config.validation.every = config.checkpoint.every = arguments.steps + 1;
  config.validation.frames = config.validation.frames.empty() ? "" : "-1:";
  config.validation.script.clear();
  config.validation.pairs.clear();
  return config;
}

// A program of its own that trains one step: from its start to its end, with the checkpoint that it saves.
double seconds_to_first_step(const BenchArguments& arguments, const fs::path& file, const fs::path& run) {
  std::vector<std::string> argv{executable_path().string(), "train", file.string(), "--fresh", "--stop-at", "1"};
  for (const std::string& setting : arguments.settings) argv.insert(argv.end(), {"--set", setting});
  argv.insert(argv.end(), {"--set", "run.dir=" + run.string()});
  fs::remove_all(run);
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult result = run_process(argv, std::chrono::minutes(10));
  if (result.exit_code != 0) fail_program("a run of one step", result);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

OurRound run_ours(const BenchArguments& arguments, const fs::path& file, const Config& config) {
  fs::remove_all(config.run.dir);
  StopOnly observer;
  TrainResult result;
  engine(config.run.deterministic)
      .train({.config = config, .mode = RunMode::start, .time_replay = true}, observer, result)
      .raise();
  if (result.interrupted) throw Error(ErrorKind::interrupted, "interrupted");
  return {.steps_per_second = recorded_rate(config.run.dir),
          .seconds_to_first_step = seconds_to_first_step(arguments, file, config.run.dir.parent_path() / "one-step"),
          .replay_seconds = result.replay_seconds};
}

// The peer's rate, or a failure with its last words.
double peer_rate(const std::string& python, const fs::path& program, const std::string& variant, const Config& config) {
  const auto option = [&](const char* name) { return config.model.options.at(name); };
  const std::vector<std::string> argv{python,       program.string(),
                                      "--variant",  variant,
                                      "--features", option("features"),
                                      "--convs",    option("convs"),
                                      "--batch",    std::to_string(config.data.batch),
                                      "--crop",     std::to_string(config.data.crop_px),
                                      "--scale",    std::to_string(config.model.scale),
                                      "--steps",    std::to_string(config.run.steps)};
  const ProcessResult result = run_process(argv, std::chrono::minutes(30));
  if (result.exit_code != 0) fail_program("the PyTorch program", result);
  return nlohmann::json::parse(result.out)["it_per_s"];
}

std::vector<std::pair<std::string, std::string>> peers(const std::string& python, const Config& config) {
  if (python.empty()) {
    log::info("no Python beside torch was found (--python names one): ours alone is measured");
    return {};
  }
  if (config.model.arch != "compact") {
    log::info(fmt::format("the PyTorch loop has compact only, not {}: ours alone is measured", config.model.arch));
    return {};
  }
  std::vector<std::pair<std::string, std::string>> peers{{"usual", "usual PyTorch loop, no loading"}};
  const bool card =
      run_process({python, "-c", "import torch; exit(0 if torch.cuda.is_available() else 1)"}, std::chrono::minutes(2))
          .exit_code == 0;
  if (card) peers.emplace_back("graph", "PyTorch bf16, channels_last, fused Adam in a CUDA graph, no loading");
  return peers;
}

// The rate beside each peer's, a step beside its graph alone, and the start.
std::vector<BenchRow> rows_of(const std::string& name, const std::vector<OurRound>& rounds,
                              const std::vector<std::pair<std::string, std::string>>& others,
                              const std::vector<std::vector<double>>& theirs) {
  const auto median_of = [&](const auto& value) {
    std::vector<double> values;
    for (const OurRound& round : rounds) values.push_back(value(round));
    return median(values);
  };
  const double rate = median_of([](const OurRound& round) { return round.steps_per_second; });
  std::vector<BenchRow> rows;
  if (others.empty()) rows.push_back({name, "", rate, 0});
  for (std::size_t i = 0; i < others.size(); ++i) rows.push_back({name, others[i].second, rate, median(theirs[i])});
  if (rounds.front().replay_seconds) {
    const double replay = median_of([](const OurRound& round) { return round.replay_seconds.value_or(0); });
    rows.push_back({"step / replay, " + name, "the step's graph alone", 1e3 / rate, 1e3 * replay, "ms"});
  }
  rows.push_back({"start to first step, " + name, "",
                  median_of([](const OurRound& round) { return round.seconds_to_first_step; }), 0, "s"});
  return rows;
}

// Ours and the peers in turns: what the machine does besides touches all of them alike.
std::vector<BenchRow> measure(const BenchArguments& arguments) {
  const WorkFolder folder("bench");
  const fs::path program = folder.path() / "train_loop.py";
  for (const char* file : {"compact.py", "train_loop.py"}) write_file_atomically(folder.path() / file, example(file));
  const fs::path file = config_file(arguments, folder.path());
  const Config config = bench_config(arguments, file, folder.path());
  const std::string python = bench_python(arguments.python);
  const auto others = peers(python, config);
  std::vector<OurRound> ours;
  std::vector<std::vector<double>> theirs(others.size());
  for (int round = 0; round < arguments.rounds; ++round) {
    ours.push_back(run_ours(arguments, file, config));
    for (std::size_t i = 0; i < others.size(); ++i)
      theirs[i].push_back(peer_rate(python, program, others[i].first, config));
  }
  const std::string name = fmt::format("train {} x{} batch {} crop {}", config.model.arch, config.model.scale,
                                       config.data.batch, config.data.crop_px);
  return rows_of(name, ours, others, theirs);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand("bench", "This machine's numbers beside PyTorch's");
  command->require_subcommand(1);
  CLI::App* train = command->add_subcommand("train", "Training steps a second, frames from the script included");
  train->footer(
      "\nRuns the config's training (by default the 2x example on its own clip) and the same network in PyTorch loops\n"
      "that load nothing, in turns, and prints the medians; further a step's time beside that of its CUDA graph alone, "
      "and\n"
      "the seconds that a run of one step takes from the program's start to its end. --json: {\"rows\": [{name, ours, "
      "peer, peer_name, ratio, "
      "unit}]}.");
  train->add_option("CONFIG", arguments->config, "Config file (.toml); default: the 2x example");
  train->add_option("--set", arguments->settings, "Override a key of the config (repeatable)")
      ->type_name("SECTION.KEY=VALUE");
  train->add_option("--steps", arguments->steps, "Steps a round")
      ->check(CLI::Range(12, 1'000'000))
      ->capture_default_str();
  train->add_option("--rounds", arguments->rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  train->add_option("--python", arguments->python, "Python with PyTorch; default: the one beside torch");
  train->add_flag("--json", arguments->json, "Rows as JSON");
  train->callback([arguments] { print_rows(measure(*arguments), arguments->json); });
  add_bench_apply(*command);
  add_bench_conv(*command);
  add_bench_gan(*command);
  add_bench_models(*command);
}

}  // namespace reelgrad::cli
