#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/base/text.h"
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

struct Row {
  std::string name, peer_name;
  double ours = 0, peer = 0;  // steps a second
};

class StopOnly : public Observer {
 public:
  bool stop_requested() override { return reelgrad::stop_requested(); }
};

double median(std::vector<double> values) {
  if (values.empty()) fail("no rate was measured: --steps is too small");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The configuration as it is, but for a short run that neither validates nor saves before its end.
Config bench_config(const BenchArguments& arguments, const fs::path& folder) {
  fs::path file = arguments.config;
  if (file.empty()) {
    file = folder / "sr2x.toml";
    write_file_atomically(file, example("sr2x.toml"));
    write_file_atomically(folder / "sr2x.vpy", example("sr2x.vpy"));
  }
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

// The rates of the run's records, but the first: it holds warm-up and the first decoding.
double train_rate(const Config& config) {
  fs::remove_all(config.run.dir);
  StopOnly observer;
  TrainResult result;
  engine(config.run.deterministic).train({.config = config, .mode = RunMode::start}, observer, result).raise();
  if (result.interrupted) throw Error(ErrorKind::interrupted, "interrupted");
  std::vector<double> rates;
  std::istringstream lines(read_file(config.run.dir / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("it_per_s")) rates.push_back(record["it_per_s"]);
  }
  if (rates.size() > 1) rates.erase(rates.begin());
  return median(rates);
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
  if (result.exit_code != 0) {
    fail(fmt::format("the PyTorch program ended with {}: {}", result.exit_code,
                     result.err.substr(result.err.size() - std::min<std::size_t>(result.err.size(), 2000))));
  }
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

// Ours and the peers in turns: what the machine does besides touches all of them alike.
std::vector<Row> measure(const BenchArguments& arguments) {
  const WorkFolder folder("bench");
  const fs::path program = folder.path() / "train_loop.py";
  write_file_atomically(program, example("train_loop.py"));
  const Config config = bench_config(arguments, folder.path());
  const std::string python = find_python(arguments.python);
  if (!arguments.python.empty() && python.empty()) fail(fmt::format("--python {}: no such program", arguments.python));
  const auto others = peers(python, config);
  std::vector<double> ours;
  std::vector<std::vector<double>> theirs(others.size());
  for (int round = 0; round < arguments.rounds; ++round) {
    ours.push_back(train_rate(config));
    for (std::size_t i = 0; i < others.size(); ++i)
      theirs[i].push_back(peer_rate(python, program, others[i].first, config));
  }
  const std::string name = fmt::format("train {} x{} batch {} crop {}", config.model.arch, config.model.scale,
                                       config.data.batch, config.data.crop_px);
  if (others.empty()) return {{name, "", median(ours), 0}};
  std::vector<Row> rows;
  for (std::size_t i = 0; i < others.size(); ++i)
    rows.push_back({name, others[i].second, median(ours), median(theirs[i])});
  return rows;
}

void print(const std::vector<Row>& rows, bool as_json) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    const bool alone = row.peer_name.empty();
    const auto or_null = [&](double value) { return alone ? nlohmann::ordered_json() : nlohmann::ordered_json(value); };
    list.push_back({{"name", row.name},
                    {"ours", row.ours},
                    {"peer", or_null(row.peer)},
                    {"peer_name", row.peer_name},
                    {"ratio", or_null(alone ? 0 : row.ours / row.peer)},
                    {"unit", "it/s"}});
    if (as_json) continue;
    fmt::print("{}: {:.1f} it/s", row.name, row.ours);
    fmt::print(
        "{}\n",
        alone ? "" : fmt::format(", {}: {:.1f} it/s, ratio {:.2f}", row.peer_name, row.peer, row.ours / row.peer));
  }
  if (as_json) fmt::print("{}\n", nlohmann::ordered_json{{"rows", list}}.dump(2));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand("bench", "This machine's numbers beside PyTorch's");
  command->require_subcommand(1);
  CLI::App* train = command->add_subcommand("train", "Training steps a second, frames from the script included");
  train->footer(
      "\nRuns the config's training (by default the 2x example on its own clip) and the same network in PyTorch loops\n"
      "that load nothing, in turns, and prints the medians. --json: {\"rows\": [{name, ours, peer, peer_name, ratio, "
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
  train->callback([arguments] { print(measure(*arguments), arguments->json); });
}

}  // namespace reelgrad::cli
