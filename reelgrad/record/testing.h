// Runs and snapshots for the tests of record/.
#pragma once
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "reelgrad/base/files.h"
#include "reelgrad/config/config.h"
#include "reelgrad/record/run_folder.h"

namespace reelgrad::testing_record {

// A run in `run`, with a script beside it that need only exist.
inline Config run_config(const std::filesystem::path& run) {
  const std::filesystem::path script = run.parent_path() / "train.vpy";
  if (!std::filesystem::exists(script)) write_file_atomically(script, "");
  Config config;
  config.run.name = "a run";
  config.run.dir = run;
  config.data.script = {ScriptConfig{.path = script}};
  return config;
}

// Every element is the step: a mixture of two checkpoints would show.
inline Snapshot snapshot_of(std::int64_t step, std::int64_t elements = 1000) {
  const auto filled = [&](double value) { return torch::full({elements}, value); };
  const auto value = static_cast<double>(step);
  return {.step = step,
          .best_score = 30 + value / 7,
          .best_step = step,
          .model = {{"body.0.weight", filled(value)}},
          .training = {{"network.body.0.weight", filled(value + 0.5)},
                       {"optimizer.steps", filled(value)},
                       {"generator.cpu", torch::full({100}, step % 251, torch::kUInt8)}}};
}

// True when every part of the snapshot is of its step.
inline bool is_whole(const Snapshot& snapshot, std::int64_t elements = 1000) {
  const Snapshot expected = snapshot_of(snapshot.step, elements);
  const auto equal = [](const NamedTensors& a, const NamedTensors& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != b[i].first || !torch::equal(a[i].second, b[i].second)) return false;
    }
    return true;
  };
  return equal(snapshot.model, expected.model) && equal(snapshot.training, expected.training) &&
         snapshot.best_score == expected.best_score && snapshot.best_step == expected.best_step;
}

}  // namespace reelgrad::testing_record
