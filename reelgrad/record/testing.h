// Runs and snapshots for the tests of record/.
#pragma once
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/testing/temporary_folder.h"
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

class RunFolderTest : public testing::Test {
 private:
  test::TemporaryFolder folder_;  // made first, removed last

 protected:
  std::filesystem::path run_ = folder().path() / "run";
  Config config_ = run_config(run_);

  RunFolder open(RunMode mode) const { return RunFolder(config_, {}, mode); }

  // The message of the error of this kind that opening gives.
  std::string refusal(RunMode mode, ErrorKind kind) const {
    try {
      open(mode);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "";
  }

  std::vector<std::string> checkpoint_names() const {
    std::vector<std::string> names;
    for (const CheckpointInfo& info : list_checkpoints(run_)) names.push_back(info.path.filename().string());
    return names;
  }

  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(run_ / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  const test::TemporaryFolder& folder() const { return folder_; }
};

inline ValidationRecord validation_of(std::int64_t step, double psnr) {
  ValidationRecord record;
  record.step = step;
  record.frames = 26;
  record.ours = {psnr, psnr + 1, 0.9, 0.91};
  record.bicubic = {28, 29, 0.8, 0.81};
  return record;
}

}  // namespace reelgrad::testing_record
