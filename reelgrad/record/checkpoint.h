// One checkpoint on disk: a folder step-NNNNNN of model.safetensors, training.safetensors, state.json, in adversarial
// training discriminator.safetensors, and manifest.json (size and XXH3-128 of each of the others), which appears whole
// or not at all.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/train/recorder.h"

namespace reelgrad {

inline constexpr const char* kCheckpointsFolder = "checkpoints";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kDiscriminatorFile = "discriminator.safetensors";

// What state.json holds besides the snapshot's own fields.
struct CheckpointState {
  std::int64_t step = 0;
  std::optional<double> best_score;
  std::int64_t best_step = 0;
  std::optional<double> score;  // of the validation at this very step
  bool validation_due = false;  // as in Snapshot
};

std::string step_name(std::int64_t step);  // "step-000100"

// Throws failed, leaving nothing behind, when a tensor is not finite or the files cannot be written.
void write_checkpoint(const std::filesystem::path& folder, const Snapshot& snapshot, const NetworkSpec& spec,
                      std::optional<double> score);

// What is wrong with a checkpoint, or empty. Reads every byte.
std::string find_damage(const std::filesystem::path& folder);

// Throws failed, also for weights that are not finite.
CheckpointState read_state(const std::filesystem::path& folder);
Snapshot read_checkpoint(const std::filesystem::path& folder);

// The checkpoints' folders in rising order of steps, not verified.
struct StepFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};
std::vector<StepFolder> step_folders(const std::filesystem::path& run_folder);

}  // namespace reelgrad
