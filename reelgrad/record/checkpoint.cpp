#include "reelgrad/record/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/text.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kTrainingFile = "training.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr const char* kManifestFile = "manifest.json";
constexpr std::array kFiles{kModelFile, kTrainingFile, kStateFile};  // always there
constexpr std::string_view kStepPrefix = "step-";
constexpr int kFormat = 1;
constexpr std::uintmax_t kOverheadBytes = 256 * 1024;  // headers, state.json, manifest.json, the file system's blocks

// JSON has no infinities, but a perfect picture has an infinite PSNR.
Json number_or_text(const std::optional<double>& value) {
  if (!value) return nullptr;
  return std::isfinite(*value) ? Json(*value) : Json(fmt::format("{}", *value));
}

std::optional<double> number_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();
}

// Weights and optimizer state. Losses that are kept for the next metrics line may lack a number: an fp16 step that was
// skipped had none.
void require_sound(const Snapshot& snapshot) {
  require_finite(snapshot.model, fmt::format("the model of step {}", snapshot.step));
  NamedTensors state = snapshot.training;
  std::erase_if(state, [](const auto& entry) { return entry.first.starts_with("meter."); });
  require_finite(state, fmt::format("the training state of step {}", snapshot.step));
  require_finite(snapshot.discriminator, fmt::format("the discriminator of step {}", snapshot.step));
}

std::uintmax_t bytes_of(const NamedTensors& tensors) {
  std::uintmax_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

std::string manifest_of(const fs::path& folder) {
  Json files = Json::object();
  const auto add = [&](const char* name) {
    files[name] = {{"bytes", fs::file_size(folder / name)}, {"xxh3_128", xxh3_128_hex(folder / name)}};
  };
  for (const char* name : kFiles) add(name);
  if (fs::exists(folder / kDiscriminatorFile)) add(kDiscriminatorFile);
  return Json{{"format", kFormat}, {"files", files}}.dump(2) + "\n";
}

std::string state_of(const Snapshot& snapshot, std::optional<double> score) {
  return Json{{"format", kFormat},
              {"step", snapshot.step},
              {"score", number_or_text(score)},
              {"best_step", snapshot.best_step},
              {"best_score", number_or_text(snapshot.best_score)},
              {"validation_due", snapshot.validation_due}}
             .dump(2) +
         "\n";
}

void write_files(const fs::path& final_folder, const Snapshot& snapshot, const NetworkSpec& spec,
                 std::optional<double> score) {
  PendingFolder pending(final_folder);
  write_safetensors(pending.path() / kModelFile, snapshot.model, model_metadata(spec));
  write_safetensors(pending.path() / kTrainingFile, snapshot.training);
  if (!snapshot.discriminator.empty())
    write_safetensors(pending.path() / kDiscriminatorFile, snapshot.discriminator, {{"format", "pt"}});
  write_file_atomically(pending.path() / kStateFile, state_of(snapshot, score));
  write_file_atomically(pending.path() / kManifestFile, manifest_of(pending.path()));
  pending.commit();
}

// What is wrong with one file that the manifest describes, or empty.
std::string file_damage(const fs::path& folder, const char* name, const Json& files) {
  const Json& expected = files.at(name);
  const fs::path file = folder / name;
  if (!fs::exists(file)) return fmt::format("{} is missing", name);
  const auto bytes = expected.at("bytes").get<std::uintmax_t>();
  if (fs::file_size(file) != bytes) {
    return fmt::format("{} has {} bytes instead of {}", name, fs::file_size(file), bytes);
  }
  if (xxh3_128_hex(file) != expected.at("xxh3_128").get<std::string>()) {
    return fmt::format("{} is not what was written (its hash differs from {}'s)", name, kManifestFile);
  }
  return "";
}

std::optional<std::int64_t> parse_step(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const char* first = name.data() + kStepPrefix.size();
  const char* last = name.data() + name.size();
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(first, last, step);
  if (error != std::errc{} || stop != last || step < 0) return std::nullopt;
  return step;
}

}  // namespace

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:06}", kStepPrefix, step);
}

void write_checkpoint(const fs::path& folder, const Snapshot& snapshot, const NetworkSpec& spec,
                      std::optional<double> score) {
  const std::uintmax_t needed =
      bytes_of(snapshot.model) + bytes_of(snapshot.training) + bytes_of(snapshot.discriminator) + kOverheadBytes;
  const auto fail_to_save = [&](const std::string& reason) {
    fail(fmt::format("cannot save the checkpoint {} ({} bytes): {}; the checkpoints before it are unharmed",
                     folder.string(), needed, reason));
  };
  require_sound(snapshot);
  // Asked first: a full volume is then found before the other files of this run suffer from it.
  if (const std::uintmax_t free = free_bytes(folder.parent_path()); free < needed) {
    fail_to_save(fmt::format("{}, {} are free", errno_name(ENOSPC), format_bytes(free)));
  }
  try {
    write_files(folder, snapshot, spec, score);
  } catch (const Error& error) {
    fail_to_save(error.what());
  } catch (const fs::filesystem_error& error) {
    fail_to_save(errno_name(error.code().value()));
  }
}

std::string find_damage(const fs::path& folder) {
  try {
    if (!fs::exists(folder / kManifestFile)) return fmt::format("{} is missing", kManifestFile);
    const Json manifest = Json::parse(read_file(folder / kManifestFile));
    const Json& files = manifest.at("files");
    for (const char* name : kFiles) {
      if (const std::string damage = file_damage(folder, name, files); !damage.empty()) return damage;
    }
    if (files.contains(kDiscriminatorFile)) return file_damage(folder, kDiscriminatorFile, files);
    return "";
  } catch (const Json::exception&) {
    return fmt::format("{} cannot be read as JSON", kManifestFile);
  } catch (const std::exception& error) {
    return error.what();
  }
}

CheckpointState read_state(const fs::path& folder) {
  const fs::path file = folder / kStateFile;
  try {
    const Json json = Json::parse(read_file(file));
    if (const int format = json.at("format"); format > kFormat) {
      fail(fmt::format("{}: written by a newer reelgrad (format {}, known up to {}): update reelgrad", file.string(),
                       format, kFormat));
    }
    return {.step = json.at("step"),
            .best_score = number_of(json.at("best_score")),
            .best_step = json.at("best_step"),
            .score = number_of(json.at("score")),
            .validation_due = json.value("validation_due", false)};
  } catch (const Json::exception& error) {
    fail(fmt::format("{}: cannot be read: {}", file.string(), error.what()));
  } catch (const std::logic_error& error) {  // std::stod
    fail(fmt::format("{}: a score is no number", file.string()));
  }
}

Snapshot read_checkpoint(const fs::path& folder) {
  const CheckpointState state = read_state(folder);
  Snapshot snapshot{.step = state.step,
                    .best_score = state.best_score,
                    .best_step = state.best_step,
                    .validation_due = state.validation_due,
                    .model = read_safetensors(folder / kModelFile).tensors,
                    .training = read_safetensors(folder / kTrainingFile).tensors};
  if (fs::exists(folder / kDiscriminatorFile))
    snapshot.discriminator = read_safetensors(folder / kDiscriminatorFile).tensors;
  require_sound(snapshot);
  return snapshot;
}

std::vector<StepFolder> step_folders(const fs::path& run_folder) {
  std::vector<StepFolder> folders;
  std::error_code error;
  for (fs::directory_iterator entry(run_folder / kCheckpointsFolder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto step = parse_step(entry->path().filename().string());
    if (step && entry->is_directory()) folders.push_back({*step, entry->path()});
  }
  std::ranges::sort(folders, {}, &StepFolder::step);
  return folders;
}

}  // namespace reelgrad
