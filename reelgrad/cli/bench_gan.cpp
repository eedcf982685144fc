// Adversarial training beside a usual PyTorch loop of the same networks and losses.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/cli/bench_rows.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/cli/templates.h"

namespace reelgrad::cli {
namespace {

namespace fs = std::filesystem;

struct GanArguments {
  std::vector<std::string> archs, settings;
  std::int64_t steps = 180;
  int rounds = 3, batch = 16, crop = 64;
  std::string python;
  bool json = false;
};

struct Round {
  double steps_per_second = 0, peak_mib = 0;  // 0: of the processor, not known
};

struct Bench {
  const GanArguments& arguments;
  fs::path folder, program;
  std::string python;
  bool card;
};

Bench prepare(const GanArguments& arguments, const fs::path& folder) {
  Bench bench{arguments, folder, folder / "gan_loop.py", bench_python(arguments.python), false};
  if (bench.python.empty()) fail("bench gan: no Python beside torch was found (--python names one)");
  for (const char* file : {"compact.py", "gan_loop.py", "sr-gan.vpy"})
    write_file_atomically(folder / file, example(file));
  const ProcessResult written = run_process(
      {bench.python, bench.program.string(), "--write-vgg", (folder / "vgg19.pth").string()}, std::chrono::minutes(5));
  if (written.exit_code != 0) fail_program("the PyTorch program", written);
  bench.card = run_process({bench.python, "-c", "import torch; exit(0 if torch.cuda.is_available() else 1)"},
                           std::chrono::minutes(2))
                   .exit_code == 0;
  return bench;
}

// The peer's networks and losses, on the example's clip; neither validated nor saved before the end.
Config config_of(const Bench& bench, const std::string& arch) {
  const GanArguments& arguments = bench.arguments;
  const std::string text = fmt::format(
      "[run]\nsteps = {}\nlog_every = {}\n"
      "[data]\nscript = \"sr-gan.vpy\"\nbatch = {}\ncrop_px = {}\n"
      "[model]\narch = \"{}\"\nscale = 4\n"
      "[loss]\nl1 = 1\nperceptual = {{ weight = 1, weights = \"vgg19.pth\" }}\ngan = {{ weight = 0.1 }}\n"
      "[optimizer]\nname = \"adam\"\nlr = 1e-4\n"
      "[precision]\namp = \"{}\"\n"
      "[checkpoint]\nevery = {}\n",
      arguments.steps, std::max<std::int64_t>(1, arguments.steps / 6), arguments.batch, arguments.crop, arch,
      bench.card ? "fp16" : "off", arguments.steps + 1);
  Config config = parse_config(text, "bench gan", bench.folder, arguments.settings);
  config.run.dir = bench.folder / "run";
  return config;
}

Round run_ours(const Config& config) {
  fs::remove_all(config.run.dir);
  StopOnly observer;
  TrainResult result;
  engine(config.run.deterministic).train({.config = config, .mode = RunMode::start}, observer, result).raise();
  if (result.interrupted) throw Error(ErrorKind::interrupted, "interrupted");
  const std::vector<double> memory = recorded(config.run.dir, "memory_mb");
  return {.steps_per_second = recorded_rate(config.run.dir), .peak_mib = *std::ranges::max_element(memory)};
}

Round run_peer(const Bench& bench, const Config& config) {
  std::vector<std::string> argv{bench.python, bench.program.string(),
                                "--arch",     config.model.arch,
                                "--batch",    std::to_string(config.data.batch),
                                "--crop",     std::to_string(config.data.crop_px),
                                "--steps",    std::to_string(config.run.steps)};
  for (const char* option : {"features", "convs", "blocks"}) {
    const auto given = config.model.options.find(option);
    if (given != config.model.options.end()) argv.insert(argv.end(), {fmt::format("--{}", option), given->second});
  }
  const ProcessResult result = run_process(argv, std::chrono::minutes(60));
  if (result.exit_code != 0) fail_program("the PyTorch program", result);
  const auto answer = nlohmann::json::parse(result.out);
  return {.steps_per_second = answer["it_per_s"], .peak_mib = answer["peak_bytes"].get<double>() / (1 << 20)};
}

double median_of(const std::vector<Round>& rounds, double Round::*value) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(round.*value);
  return median(values);
}

// Ours and the peer in turns: what the machine does besides touches both alike.
std::vector<BenchRow> measure(const Bench& bench, const std::string& arch) {
  const Config config = config_of(bench, arch);
  std::vector<Round> ours, theirs;
  for (int round = 0; round < bench.arguments.rounds; ++round) {
    ours.push_back(run_ours(config));
    theirs.push_back(run_peer(bench, config));
  }
  const std::string name =
      fmt::format("train {} x4 unet_sn vgg19 batch {} crop {}", arch, config.data.batch, config.data.crop_px);
  const std::string peer = "usual PyTorch loop, no loading";
  std::vector<BenchRow> rows{
      {name, peer, median_of(ours, &Round::steps_per_second), median_of(theirs, &Round::steps_per_second)}};
  const double memory = median_of(ours, &Round::peak_mib), memory_of_peer = median_of(theirs, &Round::peak_mib);
  if (memory > 0 && memory_of_peer > 0) rows.push_back({"peak memory, " + name, peer, memory, memory_of_peer, "MiB"});
  return rows;
}

std::vector<BenchRow> measure_all(const GanArguments& arguments) {
  const WorkFolder folder("bench");
  const Bench bench = prepare(arguments, folder.path());
  std::vector<BenchRow> rows;
  for (const std::string& arch : arguments.archs)
    for (BenchRow& row : measure(bench, arch)) rows.push_back(std::move(row));
  return rows;
}

}  // namespace

void add_bench_gan(CLI::App& bench) {
  auto arguments = std::make_shared<GanArguments>();
  arguments->archs = {"compact", "esrgan"};
  CLI::App* command = bench.add_subcommand("gan", "Adversarial training: steps a second and memory");
  command->footer(
      "\nTrains a 4x network with L1, VGG19's features and a U-Net discriminator, in fp16 on a card, frames from the "
      "demo\n"
      "clip included, and the same networks and losses in a usual PyTorch loop that loads nothing, in turns; prints "
      "the\n"
      "medians. VGG19 has random weights: nothing is downloaded. --json as in bench train.");
  command->add_option("--arch", arguments->archs, "compact or esrgan (repeatable)")
      ->check(CLI::IsMember({"compact", "esrgan"}))
      ->capture_default_str();
  command->add_option("--set", arguments->settings, "Override a key of our configuration (repeatable)")
      ->type_name("SECTION.KEY=VALUE");
  command->add_option("--batch", arguments->batch, "Samples")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--crop", arguments->crop, "Side of the input crop")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  command->add_option("--steps", arguments->steps, "Steps a round")
      ->check(CLI::Range(12, 1'000'000))
      ->capture_default_str();
  command->add_option("--rounds", arguments->rounds, "Rounds")->check(CLI::Range(1, 100))->capture_default_str();
  command->add_option("--python", arguments->python, "Python with PyTorch; default: the one beside torch");
  command->add_flag("--json", arguments->json, "Rows as JSON");
  command->callback([arguments] { print_rows(measure_all(*arguments), arguments->json); });
}

}  // namespace reelgrad::cli
