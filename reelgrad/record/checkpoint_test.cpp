#include "reelgrad/record/checkpoint.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/record/run_folder.h"
#include "reelgrad/record/testing.h"

namespace reelgrad {
namespace {

using namespace testing_record;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointTest : public RunFolderTest {};

TEST_F(CheckpointTest, ADiscriminatorHasItsFile) {
  Snapshot snapshot = snapshot_of(7);
  snapshot.discriminator = {{"conv0.weight", torch::full({4}, 0.5)}};
  {
    RunFolder run = open(RunMode::start);
    run.checkpoint(snapshot);
  }
  const fs::path folder = run_ / "checkpoints/step-000007";
  EXPECT_EQ(find_damage(folder), "");
  EXPECT_EQ(find_discriminator_file(run_), folder / "discriminator.safetensors");
  const Snapshot again = open(RunMode::resume).resume_point().value();
  ASSERT_EQ(again.discriminator.size(), 1U);
  EXPECT_TRUE(torch::equal(again.discriminator[0].second, snapshot.discriminator[0].second));
  fs::resize_file(folder / "discriminator.safetensors", 20);
  EXPECT_THAT(find_damage(folder), HasSubstr("discriminator.safetensors has 20 bytes"));
  fs::remove(folder / "discriminator.safetensors");
  EXPECT_THAT(find_damage(folder), HasSubstr("discriminator.safetensors is missing"));
}

TEST_F(CheckpointTest, ARunWithoutADiscriminatorSaysSo) {
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot_of(7));
  try {
    find_discriminator_file(run_);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no discriminator.safetensors"), HasSubstr("loss.gan")));
  }
}

TEST_F(CheckpointTest, ACheckpointComesBackBitForBit) {
  {
    RunFolder run = open(RunMode::start);
    run.checkpoint(snapshot_of(150));
  }
  RunFolder run = open(RunMode::resume);
  const std::optional<Snapshot> snapshot = run.resume_point();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->step, 150);
  EXPECT_TRUE(is_whole(*snapshot));
}

TEST_F(CheckpointTest, AnInfiniteOrMissingScoreSurvives) {
  Snapshot snapshot = snapshot_of(1);
  snapshot.best_score = std::numeric_limits<double>::infinity();
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot);
  EXPECT_EQ(read_checkpoint(run_ / "checkpoints/step-000001").best_score, snapshot.best_score);
  snapshot.best_score.reset();
  snapshot.step = 2;
  run.checkpoint(snapshot);
  EXPECT_EQ(read_checkpoint(run_ / "checkpoints/step-000002").best_score, std::nullopt);
}

TEST_F(CheckpointTest, TheModelFileIsSafetensorsWithItsSpec) {
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot_of(5));
  std::map<std::string, std::string> metadata;
  const auto entries = read_safetensors_header(find_model_file(run_), &metadata);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name, "body.0.weight");
  EXPECT_EQ(metadata, model_metadata({}));
}

TEST_F(CheckpointTest, TheManifestHoldsTheHashesOfXxh128sum) {
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot_of(5));
  const fs::path checkpoint = run_ / "checkpoints/step-000005";
  const auto manifest = nlohmann::json::parse(read_file(checkpoint / "manifest.json"));
  for (const char* name : {"model.safetensors", "training.safetensors", "state.json"}) {
    EXPECT_EQ(manifest["files"][name]["bytes"], fs::file_size(checkpoint / name));
    EXPECT_EQ(manifest["files"][name]["xxh3_128"], xxh3_128_hex(checkpoint / name));
  }
}

TEST_F(CheckpointTest, KeepsTheLastOnesAndTheBest) {
  config_.checkpoint.keep_last = 2;
  RunFolder run = open(RunMode::start);
  const std::vector<double> scores{30, 33, 31, 33, 32, 29};  // at steps 100, 200, …
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i + 1) * 100;
    run.validation(validation_of(step, scores[i]));
    run.checkpoint(snapshot_of(step));
  }
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-000200", "step-000500", "step-000600"));
  const std::vector<CheckpointInfo> list = list_checkpoints(run_);
  EXPECT_TRUE(list[0].best);
  EXPECT_FALSE(list[1].best || list[2].best);
  EXPECT_EQ(find_model_file(run_), run_ / "checkpoints/step-000200/model.safetensors");
}

TEST_F(CheckpointTest, WithoutValidationTheNewestIsTheModel) {
  config_.checkpoint.keep_last = 2;
  RunFolder run = open(RunMode::start);
  for (const std::int64_t step : {999'999, 1'000'000, 1'000'001}) run.checkpoint(snapshot_of(step));
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-1000000", "step-1000001"));
  EXPECT_EQ(find_model_file(run_), run_ / "checkpoints/step-1000001/model.safetensors");
  EXPECT_EQ(find_model_file(run_ / "checkpoints/step-1000000/"), run_ / "checkpoints/step-1000000/model.safetensors");
}

TEST_F(CheckpointTest, ACheckpointSavedAgainKeepsItsScore) {
  {
    RunFolder run = open(RunMode::start);
    run.validation(validation_of(100, 33));
    run.checkpoint(snapshot_of(100));
  }
  RunFolder run = open(RunMode::resume);
  run.checkpoint(snapshot_of(100));  // stopped again before another step
  EXPECT_EQ(list_checkpoints(run_)[0].score, 33);
}

TEST_F(CheckpointTest, WhatIsNotFiniteIsNeverSaved) {
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot_of(1));
  const auto message = [&](const Snapshot& snapshot) -> std::string {
    try {
      run.checkpoint(snapshot);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Snapshot model = snapshot_of(2);
  model.model[0].second[7] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(message(model), HasSubstr("body.0.weight"));
  Snapshot optimizer = snapshot_of(2);
  optimizer.training[1].second[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(message(optimizer), HasSubstr("optimizer.steps"));
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-000001"));

  Snapshot skipped = snapshot_of(3);
  skipped.training.emplace_back("meter.losses", torch::full({2}, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(message(skipped), "");
}

TEST_F(CheckpointTest, AHandMadeStateWithANaNIsNotLoaded) {
  {
    RunFolder run = open(RunMode::start);
    run.checkpoint(snapshot_of(1));
  }
  const fs::path checkpoint = run_ / "checkpoints/step-000001";
  Snapshot bad = snapshot_of(1);
  bad.training[1].second[3] = std::numeric_limits<float>::quiet_NaN();
  write_safetensors(checkpoint / "training.safetensors", bad.training);
  auto manifest = nlohmann::ordered_json::parse(read_file(checkpoint / "manifest.json"));
  manifest["files"]["training.safetensors"]["xxh3_128"] = xxh3_128_hex(checkpoint / "training.safetensors");
  write_file_atomically(checkpoint / "manifest.json", manifest.dump());
  RunFolder run = open(RunMode::resume);
  EXPECT_THROW(
      {
        try {
          run.resume_point();
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("optimizer.steps"));
          throw;
        }
      },
      Error);
}

TEST_F(CheckpointTest, RemovesWhatAKilledProcessLeft) {
  { open(RunMode::start).checkpoint(snapshot_of(1)); }
  // A child that is gone before it can clean up, as a kill would leave it.
  auto* unfinished = new PendingFolder(run_ / "checkpoints/step-000002");
  const fs::path left = unfinished->path();
  const fs::path removed = run_ / "checkpoints/.removed-step-000000";
  fs::create_directories(removed);
  open(RunMode::resume);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(removed));
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-000001"));
  delete unfinished;
}

// F1: what a crash or a bad disk does to one file of the newest checkpoint.
struct Damage {
  const char* file;
  double kept;  // share of its bytes; -1: all but the last, -2: one byte changed, -3: removed
};

void PrintTo(const Damage& damage, std::ostream* out) {
  *out << damage.file << ", " << damage.kept;
}

class DamagedCheckpointTest : public CheckpointTest, public testing::WithParamInterface<Damage> {};

void damage(const fs::path& file, double kept) {
  if (kept == -3) {
    fs::remove(file);
    return;
  }
  std::string bytes = read_file(file);
  if (kept == -2) {
    bytes[bytes.size() / 2] ^= 1;
  } else {
    bytes.resize(kept == -1 ? bytes.size() - 1 : static_cast<std::size_t>(static_cast<double>(bytes.size()) * kept));
  }
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_P(DamagedCheckpointTest, ThePreviousOneIsUsedAndItIsSaid) {
  {
    RunFolder run = open(RunMode::start);
    for (const std::int64_t step : {10, 20}) {
      run.step({.step = step});
      run.checkpoint(snapshot_of(step));
    }
  }
  const fs::path newest = run_ / "checkpoints/step-000020";
  damage(newest / GetParam().file, GetParam().kept);

  EXPECT_THAT(list_checkpoints(run_)[1].damage, testing::Not(testing::IsEmpty()));
  try {
    find_model_file(newest);
    ADD_FAILURE() << "a damaged checkpoint was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step-000020"), HasSubstr(GetParam().file), HasSubstr("step-000010")));
  }

  std::vector<std::string> said;
  log::set_sink([&](log::Level level, std::string_view message) {
    if (level == log::Level::warning) said.emplace_back(message);
  });
  RunFolder run = open(RunMode::resume);
  log::set_sink({});
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("step-000020"), HasSubstr(GetParam().file), HasSubstr("going back to"),
                                      HasSubstr("step-000010"))));
  const std::optional<Snapshot> snapshot = run.resume_point();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->step, 10);
  EXPECT_TRUE(is_whole(*snapshot));
  EXPECT_EQ(metrics().size(), 1U);
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/damaged-step-000020"));
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-000010"));
}

INSTANTIATE_TEST_SUITE_P(All, DamagedCheckpointTest,
                         testing::Values(Damage{"model.safetensors", 0}, Damage{"model.safetensors", 0.5},
                                         Damage{"model.safetensors", -1}, Damage{"model.safetensors", -2},
                                         Damage{"training.safetensors", 0}, Damage{"training.safetensors", 0.0003},
                                         Damage{"training.safetensors", 0.5}, Damage{"training.safetensors", -1},
                                         Damage{"training.safetensors", -3}, Damage{"state.json", 0.5},
                                         Damage{"state.json", -2}, Damage{"manifest.json", 0},
                                         Damage{"manifest.json", 0.5}, Damage{"manifest.json", -3}));

TEST_F(CheckpointTest, WhenAllAreDamagedNothingIsTouched) {
  { open(RunMode::start).checkpoint(snapshot_of(10)); }
  damage(run_ / "checkpoints/step-000010/model.safetensors", 0.5);
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::failed), AllOf(HasSubstr("step-000010"), HasSubstr("--fresh")));
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-000010"));
}

TEST_F(CheckpointTest, AModelThatIsNotThereIsSaidSo) {
  const auto message = [](const fs::path& model) -> std::string {
    try {
      find_model_file(model);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(run_), AllOf(HasSubstr(run_.string()), HasSubstr("no such file")));
  fs::create_directories(run_);
  EXPECT_THAT(message(run_), HasSubstr("neither a run folder"));
  fs::create_directories(run_ / "checkpoints");
  EXPECT_THAT(message(run_), HasSubstr("no checkpoint yet"));
}

}  // namespace
}  // namespace reelgrad
