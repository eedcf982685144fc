// A run's folder: config.toml log.txt metrics.jsonl checkpoints/ preview/. Every file is written whole or not at all.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/config/run_mode.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/train/recorder.h"

namespace reelgrad {

// Implements the trainer's Recorder on disk. One process at a time has a run folder (a lock file).
class RunFolder : public Recorder {
 public:
  // start: refuses (usage) a folder that holds a run, naming --resume and --fresh. resume: needs one (usage). fresh: sets
  // an older run aside as `<dir>.old-N`. Checks that the folder can be written and has room before anything is made.
  // On resume, removes leftovers of a killed process and cuts metrics.jsonl back to the checkpoint that is resumed.
  RunFolder(const Config& config, const NetworkSpec& spec, RunMode mode);
  ~RunFolder() override;

  // The newest good checkpoint of a resumed run; a damaged one is named in a warning and the one before it is taken.
  // nullopt: none was saved yet. Throws failed when all are damaged.
  std::optional<Snapshot> resume_point();

  void step(const StepRecord& record) override;
  void validation(const ValidationRecord& record) override;
  void checkpoint(const Snapshot& snapshot) override;

  const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- Reading ---

struct CheckpointInfo {
  std::filesystem::path path;  // …/checkpoints/step-000100
  std::int64_t step = 0;
  bool best = false;
  std::string damage;  // what is wrong, or empty
};
// In rising order of steps, each verified against its manifest.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& run_folder);

// The model file that MODEL on the command line means: a .safetensors itself; a checkpoint folder; a run folder (the best
// checkpoint, else the newest). Throws failed when there is none or it is damaged (naming an older good one).
std::filesystem::path find_model_file(const std::filesystem::path& model);

// float32 [C, H, W] in [0, 1], C = 1 or 3, as an 8-bit PNG; written atomically.
void write_png(const std::filesystem::path& path, const torch::Tensor& image);

}  // namespace reelgrad
