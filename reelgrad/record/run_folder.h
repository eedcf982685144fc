// A run's folder: config.toml log.txt metrics.jsonl events.out.tfevents… checkpoints/ preview/, and network.pt or
// network.so, the copy of a user's network. Every file is written whole or not at all.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/config/run_mode.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/train/recorder.h"

namespace reelgrad {

// Implements the trainer's Recorder on disk. One process at a time has a run folder (a lock file). One thread.
class RunFolder : public Recorder {
 public:
  // start: refuses (usage) a folder that holds a run, naming --resume and --fresh. resume: needs one (usage), and
  // refuses (usage) changed keys that a run must keep; other changes are listed. fresh: sets an older run aside as
  // `<dir>.old-N`. Checks that the folder can be written and has room before anything is made (failed).
  // On resume, the newest good checkpoint is chosen: a damaged one is named in a warning, set aside as damaged-step-…,
  // and the one before it is taken; when all are damaged, throws failed. Leftovers of a killed process are removed and
  // metrics.jsonl is cut back to that checkpoint.
  RunFolder(const Config& config, const NetworkSpec& spec, RunMode mode);
  ~RunFolder() override;

  // The checkpoint that a resumed run goes on from. nullopt: none was saved yet.
  std::optional<Snapshot> resume_point();

  // Lines of metrics.jsonl, and events.
  void step(const StepRecord& record) override;
  // A line of metrics.jsonl, an event, and preview/step-NNNNNN.png, which is written while training goes on: it is
  // there when the next one is asked for, or this folder is gone.
  void validation(const ValidationRecord& record) override;
  // Throws failed, with all older checkpoints intact, when a tensor is not finite or the volume cannot hold it. Then
  // removes what checkpoint.keep_last does not keep; the one of the highest validation score always stays.
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
  bool best = false;            // of the good ones, the highest validation score, the earlier one on a tie
  std::optional<double> score;  // of the validation at this step, where it can be read
  std::string damage;           // what is wrong, or empty
};
// In rising order of steps, each verified against its manifest.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& run_folder);

// Which networks a resumed run reads from its newest checkpoint, damaged or not.
struct SavedNetworks {
  bool network = false, discriminator = false;
};
SavedNetworks saved_networks(const std::filesystem::path& run_folder);

// The model file that MODEL on the command line means: a file itself; a checkpoint folder; a run folder (the best
// checkpoint, else the newest). Throws failed when there is none or it is damaged (naming another good one).
std::filesystem::path find_model_file(const std::filesystem::path& model);

// The same for a discriminator.
std::filesystem::path find_discriminator_file(const std::filesystem::path& discriminator);

// float32 [C, H, W] in [0, 1], C = 1 or 3, as an 8-bit PNG; written atomically.
void write_png(const std::filesystem::path& path, const torch::Tensor& image);

}  // namespace reelgrad
