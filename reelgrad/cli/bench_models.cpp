#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/bench_rows.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/cli/templates.h"
#include "reelgrad/config/architectures.h"

namespace reelgrad::cli {
namespace {

namespace fs = std::filesystem;

struct ModelsArguments {
  std::vector<std::string> archs;  // none: all of ours
  std::string device = "auto";
  int rounds = 3;
  std::string python;
  bool quick = false, json = false;
};

// A network as it is timed.
struct TimedModel {
  std::string arch;
  int scale = 1;
  std::map<std::string, std::string> options;
  std::string script;  // the peer's module where spandrel has none; empty: spandrel's
};

struct PeerTimes {
  double step_seconds = 0, picture_seconds = 0;
};

// A user's own network is in a file.
bool is_of_ours(const ArchitectureEntry& entry) {
  return std::ranges::none_of(entry.options, [](const ArchitectureOption& option) { return option.kind == "file"; });
}

TimedModel timed_model(const ArchitectureEntry& entry) {
  TimedModel model{.arch = std::string(entry.name),
                   .scale = entry.scales[std::min<std::size_t>(1, entry.scales.size() - 1)]};
  const std::string script = model.arch + "_reference.py";
  if (entry.window > 1) model.script = script;
  if (model.arch == "tscunet") model.options["noise"] = "false";  // its module of PyTorch's has none
  return model;
}

std::vector<TimedModel> chosen_models(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  std::vector<TimedModel> models;
  for (const ArchitectureEntry& entry : architectures()) {
    if (!is_of_ours(entry)) continue;
    known.emplace_back(entry.name);
    if (names.empty()) models.push_back(timed_model(entry));
  }
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end())
      fail_usage(fmt::format("--arch {}: there is no such architecture (known: {})", name, join(known, ", ")));
    models.push_back(timed_model(*find_architecture(name)));
  }
  return models;
}

class ModelsBench {
 public:
  explicit ModelsBench(const ModelsArguments& arguments)
      : arguments_(arguments), python_(bench_python(arguments.python)) {
    write_file_atomically(folder_.path() / "models.py", example("models.py"));
    if (python_.empty()) log::info("no Python beside torch was found (--python names one): ours alone is measured");
  }

  // Ours and the peer in turns: what the machine does besides touches both alike.
  std::vector<BenchRow> rows_of(const TimedModel& model) {
    std::vector<double> steps, pictures, their_steps, their_pictures;
    TimingResult ours;
    bool has_peer = can_run_peer(model);
    const int rounds = arguments_.quick ? 1 : arguments_.rounds;
    for (int round = 0; round < rounds; ++round) {
      if (stop_requested()) throw Error(ErrorKind::interrupted, "interrupted");
      ours = time_ours(model);
      steps.push_back(1 / ours.step_seconds);
      pictures.push_back(1 / ours.picture_seconds);
      if (!has_peer) continue;
      const std::optional<PeerTimes> theirs = time_peer(model, ours);
      has_peer = theirs.has_value();
      if (!theirs) continue;
      their_steps.push_back(1 / theirs->step_seconds);
      their_pictures.push_back(1 / theirs->picture_seconds);
    }
    say_once_what_was_timed(ours);
    const std::string name = fmt::format("{} x{}", model.arch, model.scale);
    const auto row = [&](const std::string& what, const std::vector<double>& rates, const std::vector<double>& peers,
                         const char* unit) {
      if (!has_peer) return BenchRow{what, "", median(rates), 0, unit};
      const char* module = model.script.empty() ? "spandrel" : "the tests' module";
      return BenchRow{what, fmt::format("PyTorch eager {}, {}", ours.precision, module), median(rates), median(peers),
                      unit};
    };
    return {row(fmt::format("train {} batch {} crop {}", name, ours.batch, ours.crop_px), steps, their_steps, "it/s"),
            row(fmt::format("apply {} {}x{}", name, ours.width, ours.height), pictures, their_pictures, "frames/s")};
  }

 private:
  // What the peer's program needs of Python; said once.
  bool can_run_peer(const TimedModel& model) {
    if (python_.empty()) return false;
    if (!model.script.empty()) return true;
    if (!has_spandrel_) {
      const ProcessResult found =
          run_process({python_, "-c", "import importlib.util as u; exit(u.find_spec('spandrel') is None)"},
                      std::chrono::minutes(2));
      has_spandrel_ = found.exit_code == 0;
      if (!*has_spandrel_) {
        log::info(
            fmt::format("{} has no spandrel (`pip install spandrel` gives it): ours alone is measured where the "
                        "peer is a module of its",
                        python_));
      }
    }
    return *has_spandrel_;
  }

  fs::path weights_of(const TimedModel& model) const { return folder_.path() / (model.arch + ".pth"); }

  TimingResult time_ours(const TimedModel& model) {
    TimingResult result;
    engine()
        .time_network({.arch = model.arch,
                       .scale = model.scale,
                       .options = model.options,
                       .device = arguments_.device,
                       .quick = arguments_.quick,
                       .weights = weights_of(model)},
                      result)
        .raise();
    return result;
  }

  // nullopt, with its last words in the log, where the program fails: as where its memory does not suffice.
  std::optional<PeerTimes> time_peer(const TimedModel& model, const TimingResult& sizes) {
    std::vector<std::string> argv{python_, (folder_.path() / "models.py").string(), weights_of(model).string()};
    const auto add = [&](const char* option, const std::string& value) { argv.insert(argv.end(), {option, value}); };
    add("--device", sizes.device);
    add("--batch", std::to_string(sizes.batch));
    add("--crop", std::to_string(sizes.crop_px));
    add("--width", std::to_string(sizes.width));
    add("--height", std::to_string(sizes.height));
    add("--channels", std::to_string(sizes.channels));
    add("--window", std::to_string(sizes.window));
    add("--scale", std::to_string(model.scale));
    add("--seconds", fmt::format("{}", sizes.least_seconds));
    if (!model.script.empty()) {
      const fs::path script = folder_.path() / model.script;
      write_file_atomically(script, example(model.script));
      add("--script", script.string());
    }
    const ProcessResult result = run_process(argv, std::chrono::minutes(10));
    if (result.exit_code != 0) {
      log::warning(program_failure(fmt::format("{}: the PyTorch program", model.arch), result));
      return std::nullopt;
    }
    const auto times = nlohmann::json::parse(result.out);
    return PeerTimes{times.at("step_seconds"), times.at("picture_seconds")};
  }

  void say_once_what_was_timed(const TimingResult& timed) {
    if (said_) return;
    said_ = true;
    const bool card = timed.device.starts_with("cuda");
    log::info(fmt::format("on {}: {}{}", card ? timed.device : "the CPU",
                          card ? "fp16, training under autocast" : "float32 and small pictures",
                          card ? "" : ", which says nothing about a card"));
  }

  ModelsArguments arguments_;
  WorkFolder folder_{"bench"};
  std::string python_;
  std::optional<bool> has_spandrel_;  // nullopt: not looked for yet
  bool said_ = false;
};

std::vector<BenchRow> measure_models(const ModelsArguments& arguments) {
  const std::vector<TimedModel> models = chosen_models(arguments.archs);
  warn_of_left_out_card(arguments.device);
  ModelsBench bench(arguments);
  std::vector<BenchRow> rows;
  for (const TimedModel& model : models) {
    const std::vector<BenchRow> more = bench.rows_of(model);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

}  // namespace

void add_bench_models(CLI::App& bench) {
  auto arguments = std::make_shared<ModelsArguments>();
  CLI::App* command = bench.add_subcommand("models", "Each architecture: a step of training and a picture");
  command->footer(
      "\nTimes a step of training (batch 16, crop 64) and the restoring of a 1920x1080 picture in fp16 on a card, in\n"
      "float32 and far smaller on the CPU, and in turns with each of ours the same network in PyTorch, op by op:\n"
      "spandrel's module, or one of our tests' for networks of several frames. Medians of the rounds. --json: "
      "{\"rows\":\n"
      "[{name, ours, peer, peer_name, ratio, unit}]}.");
  command->add_option("--arch", arguments->archs, "An architecture (repeatable); default: all of them");
  command->add_option("--device", arguments->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--rounds", arguments->rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  command->add_flag("--quick", arguments->quick, "One short round");
  command->add_option("--python", arguments->python, "Python with PyTorch and spandrel; default: the one beside torch");
  command->add_flag("--json", arguments->json, "Rows as JSON");
  command->callback([arguments] { print_rows(measure_models(*arguments), arguments->json); });
}

}  // namespace reelgrad::cli
