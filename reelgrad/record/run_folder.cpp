#include "reelgrad/record/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <string_view>
#include <system_error>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/lock_file.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/record/checkpoint.h"
#include "reelgrad/record/event_file.h"
#include "reelgrad/record/metrics.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.toml";
constexpr const char* kLogFile = "log.txt";
constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kPreviewFolder = "preview";
constexpr const char* kLockFile = ".lock";
constexpr const char* kRemovedPrefix = ".removed-";
constexpr std::uintmax_t kLeastFreeBytes = 16 * 1024 * 1024;  // a run cannot even begin with less

// A run draws its samples and names its tensors by these: one that changed would be another run under the same name.
constexpr std::array<std::string_view, 24> kFixedKeys{"data.augment",
                                                      "validation.frames",
                                                      "data.batch",
                                                      "data.crop_px",
                                                      "data.window",
                                                      "data.frame_step",
                                                      "data.color",
                                                      "data.segment_frames",
                                                      "data.reuse",
                                                      "run.seed",
                                                      "data.pool_frames",
                                                      "optimizer.name",
                                                      "optimizer.accumulate",
                                                      "data.scene_cuts",
                                                      "data.skip_duplicates",
                                                      "discriminator.features",
                                                      "discriminator.scales",
                                                      "discriminator.layers",
                                                      "discriminator.norm",
                                                      "discriminator.skips",
                                                      "discriminator.frames",
                                                      "discriminator.iters",
                                                      "discriminator.init_iters",
                                                      "discriminator.optimizer.name"};

bool is_fixed(std::string_view key) {
  if (key == "model.pretrained" || key == "model.pretrained_fit") return false;  // read at the start only
  if (key == "model.file" || key == "model.module") return false;                // what is in it counts
  return key.starts_with("model.") || std::ranges::find(kFixedKeys, key) != kFixedKeys.end();
}

// Free until there is one.
bool of_discriminator_itself(std::string_view key) {
  return key.starts_with("discriminator.") && key != "discriminator.iters" && key != "discriminator.init_iters";
}

bool holds_run(const fs::path& folder) {
  return fs::exists(folder / kConfigFile) || fs::exists(folder / kMetricsFile) ||
         fs::exists(folder / kCheckpointsFolder);
}

bool is_empty_but_for_the_lock(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != kLockFile) return false;
  }
  return true;
}

void refuse_used(const fs::path& folder) {
  if (!holds_run(folder)) {
    if (is_empty_but_for_the_lock(folder)) return;
    fail_usage(
        fmt::format("run.dir: {} holds other files and no run: name a folder that is new or empty", folder.string()));
  }
  fail_usage(
      fmt::format("run.dir: {} holds a run already: --resume goes on with it, --fresh sets it aside and starts anew",
                  folder.string()));
}

void require_run(const fs::path& folder) {
  if (fs::exists(folder / kConfigFile)) return;
  fail_usage(
      fmt::format("run.dir: {} holds no run that --resume could go on with: leave --resume out", folder.string()));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(fmt::format("run.dir: cannot create the folder {}: {}", folder.string(), errno_name(error.value())));
}

void require_room(const fs::path& folder) {
  const std::uintmax_t free = free_bytes(folder);
  if (free >= kLeastFreeBytes) return;
  fail(fmt::format("run.dir: the volume of {} has {} free, a run needs at least {}", folder.string(),
                   format_bytes(free), format_bytes(kLeastFreeBytes)));
}

LockFile lock(const fs::path& folder) {
  return LockFile(folder / kLockFile, fmt::format("the run folder {}", folder.string()));
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail(fmt::format("cannot move {} to {}: {}", from.string(), to.string(), errno_name(error.value())));
}

void set_aside(const fs::path& folder) {
  if (!holds_run(folder)) return;
  const LockFile nobody_runs_it = lock(folder);
  fs::path old;
  for (int n = 1; old.empty() || fs::exists(old); ++n) old = fmt::format("{}.old-{}", folder.string(), n);
  rename_or_fail(folder, old);
  log::info(fmt::format("the run in {} was set aside as {}", folder.string(), old.string()));
}

void remove_leftovers(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (const fs::path& part : {folder, folder / kCheckpointsFolder, folder / kPreviewFolder}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(part, ignored)) {
      const bool removed = entry.path().filename().string().starts_with(kRemovedPrefix);
      if (removed || PendingFolder::is_leftover(entry.path())) leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, ignored);
}

// A script may have moved; what is drawn from it may not change.
void compare_scripts(const std::vector<ScriptConfig>& before, const std::vector<ScriptConfig>& now,
                     std::vector<std::string>& refused) {
  if (before.size() != now.size()) {
    refused.push_back(fmt::format("data.script: {} -> {} scripts", before.size(), now.size()));
    return;
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto compare = [&](const char* key, const auto& from, const auto& to) {
      if (from != to) refused.push_back(fmt::format("data.script[{}].{}: {} -> {}", i, key, from, to));
    };
    compare("weight", before[i].weight, now[i].weight);
    compare("start", before[i].start, now[i].start);
    compare("end", before[i].end, now[i].end);
    compare("args", before[i].args, now[i].args);
  }
}

void compare_pairs(const std::vector<PairsConfig>& before, const std::vector<PairsConfig>& now,
                   std::vector<std::string>& refused) {
  if (before.size() != now.size()) {
    refused.push_back(fmt::format("data.pairs: {} -> {} pairs of folders", before.size(), now.size()));
    return;
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (before[i].weight == now[i].weight) continue;
    refused.push_back(fmt::format("data.pairs[{}].weight: {} -> {}", i, before[i].weight, now[i].weight));
  }
}

void compare_network_files(const fs::path& folder, const NetworkSpec& now, std::vector<std::string>& refused) {
  const fs::path file = network_file(now);
  const fs::path kept = network_file(with_file_in(folder, now));
  if (file.empty() || !fs::exists(kept) || xxh3_128_hex(file) == xxh3_128_hex(kept)) return;
  refused.push_back(fmt::format("network in {} (the run's own is {})", file.string(), kept.string()));
}

// What is read at the start only.
bool is_of_the_start(std::string_view key, const SavedNetworks& saved) {
  if (key == "discriminator.pretrained") return saved.discriminator;
  return saved.network && (key == "model.pretrained" || key == "model.pretrained_fit");
}

void check_changes(const fs::path& folder, const Config& config) {
  const Config before = load_saved_config(folder / kConfigFile);
  std::vector<std::string> refused;
  compare_scripts(before.data.script, config.data.script, refused);
  compare_pairs(before.data.pairs, config.data.pairs, refused);
  if (before.model.arch == config.model.arch) compare_network_files(folder, network_spec(config), refused);
  const GanConfig &gan = before.loss.gan, &gan_now = config.loss.gan;
  if (gan.weight > 0 && gan_now.weight > 0 && gan.net != gan_now.net)
    refused.push_back(fmt::format("loss.gan.net: {} -> {}", gan.net, gan_now.net));
  if (best_measure(before) != best_measure(config)) {  // scores of the one are none of the other
    refused.push_back(fmt::format("validation.best_by: {} -> {}", best_measure(before), best_measure(config)));
  }
  const SavedNetworks saved = saved_networks(folder);
  for (const std::string& line : differences(before, config)) {
    const std::string key = line.substr(0, line.find(':'));
    if (is_of_the_start(key, saved)) {
      log::warning(fmt::format("{}: of no effect, the run goes on from its checkpoint (--fresh starts anew)", line));
    } else if (is_fixed(key) && (gan.on() || !of_discriminator_itself(key))) {
      refused.push_back(line);
    } else {
      log::info(fmt::format("changed since the run was started: {}", line));
    }
  }
  if (refused.empty()) return;
  fail_usage(fmt::format("{} cannot go on with a changed {}: set it back to go on, or start anew with --fresh",
                         folder.string(), join(refused, ", ")));
}

// A run that is over may be looked at again; one of fewer steps was another run, with another schedule.
void check_steps(std::int64_t done, std::int64_t steps) {
  if (done <= steps) return;
  fail_usage(
      fmt::format("run.steps: {} is fewer than the {} steps that the run has done: allowed is {} (it is then "
                  "over) or more, or --fresh to start anew",
                  steps, done, done));
}

// The newest good checkpoint. Newer ones, all damaged, are set aside: retention must not count them as the newest.
std::optional<fs::path> choose_checkpoint(const fs::path& folder) {
  const std::vector<StepFolder> steps = step_folders(folder);
  std::vector<std::string> damages;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string damage = find_damage(step->path);
    if (damage.empty()) {
      if (!damages.empty()) {
        log::warning(fmt::format("{}: going back to {}", join(damages, "; "), step->path.string()));
      }
      for (auto newer = steps.rbegin(); newer != step; ++newer) {
        fs::path aside;
        for (int n = 1; aside.empty() || fs::exists(aside); ++n) {
          const std::string name = "damaged-" + newer->path.filename().string();
          aside = newer->path.parent_path() / (n == 1 ? name : fmt::format("{}-{}", name, n));
        }
        rename_or_fail(newer->path, aside);
      }
      return step->path;
    }
    damages.push_back(fmt::format("the checkpoint {} is damaged ({})", step->path.string(), damage));
  }
  if (steps.empty()) return std::nullopt;
  fail(fmt::format("{}: no checkpoint is left to go on from; start anew with --fresh", join(damages, "; ")));
}

// nullopt: none, or not to be read any more.
std::optional<double> score_of(const fs::path& checkpoint) {
  try {
    const std::optional<double> score = read_state(checkpoint).score;
    return score && std::isnan(*score) ? std::nullopt : score;  // no best, and no rival of one
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A preview is not worth a run.
void try_to_write_png(const fs::path& file, const torch::Tensor& image) {
  try {
    write_png(file, image);
  } catch (const std::exception& error) {
    log::warning(fmt::format("the preview is not written: {}", error.what()));
  }
}

}  // namespace

struct RunFolder::Impl {
  fs::path folder;
  NetworkSpec spec;
  CheckpointConfig keep;
  std::optional<LockFile> held;
  log::FileGuard log_file;
  std::optional<fs::path> resume_from;
  std::optional<EventFile> events;
  std::optional<std::pair<std::int64_t, double>> scored;  // step and score of the last validation
  std::future<void> preview;  // being written; waits for its end when it is replaced or destroyed

  void begin(const Config& config, RunMode mode);
  void go_on(const Config& config);
  void keep_network_file();
  void remove_old();
};

// Checkpoints are of no use without the user's network, whose file may move or change.
void RunFolder::Impl::keep_network_file() {
  const fs::path file = network_file(spec);
  if (file.empty()) return;
  spec = with_file_in(folder, spec);
  const fs::path kept = network_file(spec);
  if (!fs::exists(kept)) write_file_atomically(kept, read_file(file));
}

void RunFolder::Impl::begin(const Config& config, RunMode mode) {
  if (mode == RunMode::start || !holds_run(folder)) refuse_used(folder);
  require_room(folder);
  if (mode == RunMode::fresh) set_aside(folder);
  make_folder(folder);
  held.emplace(lock(folder));
  refuse_used(folder);  // by a process that was faster
  keep_network_file();
  write_file_atomically(folder / kConfigFile, to_toml(config));
  if (config.run.tensorboard) events.emplace(folder);
}

void RunFolder::Impl::go_on(const Config& config) {
  require_run(folder);
  held.emplace(lock(folder));
  check_changes(folder, config);
  remove_leftovers(folder);
  log_file = log::add_file((folder / kLogFile).string());  // what is said about the checkpoints belongs to the run
  keep_network_file();
  resume_from = choose_checkpoint(folder);
  CheckpointState state;
  if (resume_from) state = read_state(*resume_from);
  check_steps(state.step, config.run.steps);
  if (state.score) scored = {state.step, *state.score};
  cut_metrics(folder / kMetricsFile, state.step);
  write_file_atomically(folder / kConfigFile, to_toml(config));
  if (config.run.tensorboard) events.emplace(folder, state.step);
}

RunFolder::RunFolder(const Config& config, const NetworkSpec& spec, RunMode mode) : impl_(std::make_unique<Impl>()) {
  impl_->folder = config.run.dir;
  impl_->spec = spec;
  impl_->keep = config.checkpoint;
  if (mode == RunMode::resume) {
    impl_->go_on(config);
  } else {
    impl_->begin(config, mode);
    impl_->log_file = log::add_file((impl_->folder / kLogFile).string());
  }
  make_folder(impl_->folder / kCheckpointsFolder);
  make_folder(impl_->folder / kPreviewFolder);
}

RunFolder::~RunFolder() = default;

std::optional<Snapshot> RunFolder::resume_point() {
  if (!impl_->resume_from) return std::nullopt;
  return read_checkpoint(*impl_->resume_from);
}

void RunFolder::step(const StepRecord& record) {
  append_metrics(impl_->folder / kMetricsFile, record);
  if (impl_->events) impl_->events->add(record);
}

void RunFolder::validation(const ValidationRecord& record) {
  append_metrics(impl_->folder / kMetricsFile, record);
  if (impl_->events) impl_->events->add(record);
  impl_->scored = {record.step, record.score()};
  if (!record.preview.defined()) return;
  // Seconds for a large picture, in which training goes on.
  const fs::path file = impl_->folder / kPreviewFolder / (step_name(record.step) + ".png");
  if (impl_->preview.valid()) impl_->preview.wait();
  const auto write = [file, image = record.preview] { try_to_write_png(file, image); };
  try {
    impl_->preview = std::async(std::launch::async, write);
  } catch (const std::system_error&) {  // the system starts no thread
    write();
  }
}

void RunFolder::checkpoint(const Snapshot& snapshot) {
  std::optional<double> score;
  if (impl_->scored && impl_->scored->first == snapshot.step) score = impl_->scored->second;
  write_checkpoint(impl_->folder / kCheckpointsFolder / step_name(snapshot.step), snapshot, impl_->spec, score);
  impl_->remove_old();
}

// A folder is renamed before it is removed: a process killed in between leaves no half checkpoint.
void RunFolder::Impl::remove_old() {
  const std::vector<StepFolder> steps = step_folders(folder);
  std::optional<std::size_t> best;
  std::optional<double> best_score;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::optional<double> score = score_of(steps[i].path);
    if (score && (!best_score || *score > *best_score)) {
      best_score = score;
      best = i;
    }
  }
  const auto newest = static_cast<std::size_t>(std::max(1, keep.keep_last));
  for (std::size_t i = 0; i + newest < steps.size(); ++i) {
    if (best == i) continue;
    const fs::path removed = steps[i].path.parent_path() / (kRemovedPrefix + steps[i].path.filename().string());
    std::error_code error;
    fs::rename(steps[i].path, removed, error);
    fs::remove_all(error ? steps[i].path : removed, error);
    if (error)
      log::warn_once("retention", fmt::format("cannot remove {}: {}", steps[i].path.string(), error.message()));
  }
}

SavedNetworks saved_networks(const fs::path& run_folder) {
  const std::vector<StepFolder> steps = step_folders(run_folder);
  if (steps.empty()) return {};
  return {.network = true, .discriminator = fs::exists(steps.back().path / kDiscriminatorFile)};
}

const fs::path& RunFolder::path() const {
  return impl_->folder;
}

std::vector<CheckpointInfo> list_checkpoints(const fs::path& run_folder) {
  std::vector<CheckpointInfo> list;
  for (const StepFolder& step : step_folders(run_folder)) {
    list.push_back(
        {.path = step.path, .step = step.step, .score = score_of(step.path), .damage = find_damage(step.path)});
  }
  CheckpointInfo* best = nullptr;
  for (CheckpointInfo& info : list) {
    if (info.damage.empty() && info.score && (!best || *info.score > *best->score)) best = &info;
  }
  if (best) best->best = true;
  return list;
}

}  // namespace reelgrad
