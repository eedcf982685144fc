#include "reelgrad/record/run_folder.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/record/checkpoint.h"
#include "reelgrad/record/testing.h"

namespace reelgrad {
namespace {

using namespace testing_record;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 private:
  test::TemporaryFolder folder_;  // made first, removed last

 protected:
  fs::path run_ = folder().path() / "run";
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

ValidationRecord validation_of(std::int64_t step, double psnr) {
  ValidationRecord record;
  record.step = step;
  record.frames = 26;
  record.ours = {psnr, psnr + 1, 0.9, 0.91};
  record.bicubic = {28, 29, 0.8, 0.81};
  return record;
}

TEST_F(RunFolderTest, StartWritesAConfigThatReadsBackTheSame) {
  config_.optimizer.lr = 1.25e-4;
  config_.data.batch = 3;
  const RunFolder run = open(RunMode::start);
  EXPECT_EQ(run.path(), run_);
  EXPECT_THAT(differences(config_, load_config(run_ / "config.toml")), testing::IsEmpty());
  EXPECT_TRUE(fs::exists(run_ / "log.txt"));
}

TEST_F(RunFolderTest, KeepsACopyOfTheUsersNetwork) {
  const auto network_in = [&](const std::string& name, const std::string& content) {
    config_.model.arch = "torchscript";
    config_.model.options = {{"file", folder().write(name, content).string()}};
  };
  const auto open_with_network = [&](RunMode mode) { return RunFolder(config_, network_spec(config_), mode); };
  network_in("net.pt", "a network");
  open_with_network(RunMode::start).checkpoint(snapshot_of(5));
  EXPECT_EQ(read_file(run_ / "network.pt"), "a network");
  std::map<std::string, std::string> metadata;
  read_safetensors_header(find_model_file(run_), &metadata);
  EXPECT_THAT(metadata.at("reelgrad"), HasSubstr(xxh3_128_hex(run_ / "network.pt")));

  network_in("moved.pt", "a network");
  EXPECT_TRUE(open_with_network(RunMode::resume).resume_point());
  network_in("changed.pt", "another network");
  try {
    open_with_network(RunMode::resume);
    FAIL() << "went on with another network";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("changed.pt"), HasSubstr("network.pt"), HasSubstr("--fresh")));
  }
}

TEST_F(RunFolderTest, MetricsHaveTheirKeysInOrder) {
  RunFolder run = open(RunMode::start);
  run.step({.step = 100,
            .loss = 0.1,
            .learning_rate = 2e-4,
            .steps_per_second = 7.5,
            .data_wait_share = 0.25,
            .skipped = 1,
            .memory_mb = 900});
  run.step({.step = 200, .loss = 0.75, .losses = {{"l1", 0.5}, {"ssim", 0.25}}});
  run.validation(validation_of(100, 31.5));
  std::istringstream text(read_file(run_ / "metrics.jsonl"));
  std::string line;
  std::getline(text, line);
  EXPECT_THAT(
      line,
      testing::StartsWith(
          R"({"step":100,"loss":0.1,"lr":0.0002,"it_per_s":7.5,"data_wait":0.25,"skipped":1,"memory_mb":900,"time":)"));
  std::getline(text, line);
  EXPECT_THAT(line, testing::StartsWith(R"({"step":200,"loss":0.75,"losses":{"l1":0.5,"ssim":0.25},"lr":0.0,)"));
  std::getline(text, line);
  EXPECT_THAT(
      line,
      testing::StartsWith(
          R"({"step":100,"validation":{"ours":{"psnr_rgb":31.5,"psnr_y":32.5,"ssim_rgb":0.9,"ssim_y":0.91},"bicubic":{"psnr_rgb":28.0,"psnr_y":29.0,"ssim_rgb":0.8,"ssim_y":0.81},"frames":26},"time":)"));
}

TEST_F(RunFolderTest, MetricsOfAdversarialTrainingHaveTheirKeysInOrder) {
  RunFolder run = open(RunMode::start);
  run.step({.step = 5,
            .loss = std::numeric_limits<double>::quiet_NaN(),  // the discriminator alone
            .discriminator = AdversarialRecord{.loss = 1.25,
                                               .losses = {{"gan", 1}, {"r1", 0.25}},
                                               .real = 0.5,
                                               .fake = -0.5,
                                               .right = 0.75,
                                               .gradient_norm = 2,
                                               .generator_gradient_norm = 3,
                                               .learning_rate = 0.5,
                                               .skipped = 4}});
  const std::string line = read_file(run_ / "metrics.jsonl");
  EXPECT_THAT(line, testing::StartsWith(R"({"step":5,"loss":null,)"));
  EXPECT_THAT(
      line,
      HasSubstr(
          R"("discriminator":{"loss":1.25,"losses":{"gan":1.0,"r1":0.25},"real":0.5,"fake":-0.5,"right":0.75,"grad_norm":2.0,"generator_grad_norm":3.0,"lr":0.5,"skipped":4},"time":)"));
}

TEST_F(RunFolderTest, ADiscriminatorHasItsFile) {
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

TEST_F(RunFolderTest, ARunWithoutADiscriminatorSaysSo) {
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot_of(7));
  try {
    find_discriminator_file(run_);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no discriminator.safetensors"), HasSubstr("loss.gan")));
  }
}

TEST_F(RunFolderTest, ACheckpointComesBackBitForBit) {
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

TEST_F(RunFolderTest, AnInfiniteOrMissingScoreSurvives) {
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

TEST_F(RunFolderTest, TheModelFileIsSafetensorsWithItsSpec) {
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot_of(5));
  std::map<std::string, std::string> metadata;
  const auto entries = read_safetensors_header(find_model_file(run_), &metadata);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name, "body.0.weight");
  EXPECT_EQ(metadata, model_metadata({}));
}

TEST_F(RunFolderTest, TheManifestHoldsTheHashesOfXxh128sum) {
  RunFolder run = open(RunMode::start);
  run.checkpoint(snapshot_of(5));
  const fs::path checkpoint = run_ / "checkpoints/step-000005";
  const auto manifest = nlohmann::json::parse(read_file(checkpoint / "manifest.json"));
  for (const char* name : {"model.safetensors", "training.safetensors", "state.json"}) {
    EXPECT_EQ(manifest["files"][name]["bytes"], fs::file_size(checkpoint / name));
    EXPECT_EQ(manifest["files"][name]["xxh3_128"], xxh3_128_hex(checkpoint / name));
  }
}

TEST_F(RunFolderTest, KeepsTheLastOnesAndTheBest) {
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

TEST_F(RunFolderTest, WithoutValidationTheNewestIsTheModel) {
  config_.checkpoint.keep_last = 2;
  RunFolder run = open(RunMode::start);
  for (const std::int64_t step : {999'999, 1'000'000, 1'000'001}) run.checkpoint(snapshot_of(step));
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-1000000", "step-1000001"));
  EXPECT_EQ(find_model_file(run_), run_ / "checkpoints/step-1000001/model.safetensors");
  EXPECT_EQ(find_model_file(run_ / "checkpoints/step-1000000/"), run_ / "checkpoints/step-1000000/model.safetensors");
}

TEST_F(RunFolderTest, ACheckpointSavedAgainKeepsItsScore) {
  {
    RunFolder run = open(RunMode::start);
    run.validation(validation_of(100, 33));
    run.checkpoint(snapshot_of(100));
  }
  RunFolder run = open(RunMode::resume);
  run.checkpoint(snapshot_of(100));  // stopped again before another step
  EXPECT_EQ(list_checkpoints(run_)[0].score, 33);
}

TEST_F(RunFolderTest, WhatIsNotFiniteIsNeverSaved) {
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

TEST_F(RunFolderTest, AHandMadeStateWithANaNIsNotLoaded) {
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

TEST_F(RunFolderTest, AUsedFolderIsRefusedOrSetAside) {
  { open(RunMode::start).checkpoint(snapshot_of(1)); }
  EXPECT_THAT(refusal(RunMode::start, ErrorKind::usage),
              AllOf(HasSubstr(run_.string()), HasSubstr("--resume"), HasSubstr("--fresh")));
  { open(RunMode::fresh).checkpoint(snapshot_of(2)); }
  open(RunMode::fresh);
  EXPECT_TRUE(fs::exists(run_.string() + ".old-1/checkpoints/step-000001"));
  EXPECT_TRUE(fs::exists(run_.string() + ".old-2/checkpoints/step-000002"));
  EXPECT_THAT(checkpoint_names(), testing::IsEmpty());
}

TEST_F(RunFolderTest, FreshAndStartTakeAnEmptyFolder) {
  fs::create_directories(run_);
  open(RunMode::fresh);
  EXPECT_FALSE(fs::exists(run_.string() + ".old-1"));
}

TEST_F(RunFolderTest, AFolderOfOtherFilesIsRefused) {
  fs::create_directories(run_);
  write_file_atomically(run_ / "notes.txt", "mine");
  EXPECT_THAT(refusal(RunMode::start, ErrorKind::usage), HasSubstr("other files"));
  EXPECT_THAT(refusal(RunMode::fresh, ErrorKind::usage), HasSubstr("other files"));
  EXPECT_EQ(read_file(run_ / "notes.txt"), "mine");
}

TEST_F(RunFolderTest, ResumeNeedsARun) {
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::usage), AllOf(HasSubstr(run_.string()), HasSubstr("--resume")));
  EXPECT_FALSE(fs::exists(run_));
}

TEST_F(RunFolderTest, ARunWithoutACheckpointBeginsAgain) {
  open(RunMode::start).step({.step = 100});
  RunFolder run = open(RunMode::resume);
  EXPECT_FALSE(run.resume_point());
  EXPECT_THAT(metrics(), testing::IsEmpty());
}

TEST_F(RunFolderTest, ResumeCutsTheMetricsBackToItsCheckpoint) {
  {
    RunFolder run = open(RunMode::start);
    for (std::int64_t step = 10; step <= 50; step += 10) {
      run.step({.step = step, .loss = 1.0 / static_cast<double>(step)});
      if (step == 30) {
        run.validation(validation_of(step, 30));
        run.checkpoint(snapshot_of(step));
      }
    }
  }
  std::ofstream(run_ / "metrics.jsonl", std::ios::app) << R"({"step":60,"lo)";  // killed while writing
  RunFolder run = open(RunMode::resume);
  run.step({.step = 40});
  std::vector<std::int64_t> steps;
  for (const auto& line : metrics()) steps.push_back(line["step"]);
  EXPECT_THAT(steps, ElementsAre(10, 20, 30, 30, 40));
}

TEST_F(RunFolderTest, ResumeRefusesAnotherRunUnderTheSameName) {
  { open(RunMode::start); }
  config_.data.batch = 8;
  config_.run.seed = 2;
  config_.model.options["features"] = "24";
  config_.data.script.push_back(config_.data.script[0]);
  const std::string message = refusal(RunMode::resume, ErrorKind::usage);
  EXPECT_THAT(message,
              AllOf(HasSubstr("data.batch: 16 -> 8"), HasSubstr("run.seed: 1 -> 2"), HasSubstr("model.features"),
                    HasSubstr("data.script: 1 -> 2 scripts"), HasSubstr("--fresh")));
  EXPECT_EQ(load_config(run_ / "config.toml").data.batch, 16);
}

TEST_F(RunFolderTest, ResumeTakesADiscriminatorWhereThereWasNone) {
  { open(RunMode::start); }
  config_.loss.gan = 0.1;
  config_.discriminator.features = 32;
  { open(RunMode::resume); }
  config_.discriminator.features = 16;
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::usage), HasSubstr("discriminator.features: 32 -> 16"));
}

TEST_F(RunFolderTest, ResumeRefusesAnotherDiscriminatorUnderTheSameName) {
  config_.loss.gan = 0.1;
  { open(RunMode::start); }
  config_.loss.gan.weight = 0.2;
  config_.discriminator.optimizer.lr = 1e-5;
  { open(RunMode::resume); }
  config_.loss.gan.net = "patchgan";
  config_.discriminator.features = 32;
  config_.validation.best_by = "psnr_y";
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::usage),
              AllOf(HasSubstr("loss.gan.net: unet_sn -> patchgan"), HasSubstr("discriminator.features: 64 -> 32"),
                    HasSubstr("validation.best_by")));
}

TEST_F(RunFolderTest, ResumeRefusesOtherFramesOrVariablesOfAScript) {
  { open(RunMode::start); }
  config_.data.script[0].start = 10;
  config_.data.script[0].weight = 2;
  config_.data.script[0].args = {{"sigma", "3"}};
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::usage),
              AllOf(HasSubstr("data.script[0].weight: 1 -> 2"), HasSubstr("data.script[0].start: 0 -> 10"),
                    HasSubstr(R"(data.script[0].args: {} -> {"sigma": "3"})")));
}

TEST_F(RunFolderTest, ResumeRefusesOtherWeightsOrNumbersOfPairs) {
  config_.data.pairs = {{.input = run_.parent_path(), .target = run_.parent_path()}};
  { open(RunMode::start); }
  config_.data.pairs[0].weight = 2;
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::usage), HasSubstr("data.pairs[0].weight: 1 -> 2"));
  config_.data.pairs.clear();
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::usage), HasSubstr("data.pairs: 1 -> 0 pairs of folders"));
}

TEST_F(RunFolderTest, ResumeRefusesFewerStepsThanAreDone) {
  { open(RunMode::start).checkpoint(snapshot_of(40)); }
  config_.run.steps = 40;
  { open(RunMode::resume); }
  config_.run.steps = 30;
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::usage),
              AllOf(HasSubstr("run.steps: 30 is fewer than the 40 steps that the run has done"), HasSubstr("--fresh")));
  EXPECT_EQ(load_config(run_ / "config.toml").run.steps, 40);
}

TEST_F(RunFolderTest, ResumeTakesAScriptThatHasMoved) {
  { open(RunMode::start); }
  const fs::path moved = run_.parent_path() / "moved.vpy";
  fs::rename(config_.data.script[0].path, moved);
  config_.data.script[0].path = moved;
  { open(RunMode::resume); }
  EXPECT_EQ(load_config(run_ / "config.toml").data.script[0].path, moved);
}

TEST_F(RunFolderTest, AStoppedValidationIsRemembered) {
  Snapshot snapshot = snapshot_of(100);
  snapshot.validation_due = true;
  { open(RunMode::start).checkpoint(snapshot); }
  EXPECT_TRUE(open(RunMode::resume).resume_point()->validation_due);
}

TEST_F(RunFolderTest, ResumeTakesAndListsOtherChanges) {
  { open(RunMode::start); }
  config_.optimizer.lr = 1e-4;
  config_.run.steps = 40'000;
  std::vector<std::string> said;
  log::set_sink([&](log::Level, std::string_view message) { said.emplace_back(message); });
  { open(RunMode::resume); }
  log::set_sink({});
  EXPECT_THAT(said, testing::Contains(HasSubstr("optimizer.lr: 0.0002 -> 0.0001")));
  EXPECT_EQ(load_config(run_ / "config.toml").optimizer.lr, 1e-4);
}

TEST_F(RunFolderTest, OneProcessAtATime) {
  const RunFolder run = open(RunMode::start);
  for (const RunMode mode : {RunMode::resume, RunMode::fresh}) {
    EXPECT_THAT(refusal(mode, ErrorKind::failed),
                AllOf(HasSubstr(run_.string()), HasSubstr("is in use by process " + std::to_string(::getpid()))));
  }
}

TEST_F(RunFolderTest, AnImpossibleFolderIsRefusedWithThePathAndTheReason) {
  write_file_atomically(folder().path() / "file", "");
  config_.run.dir = folder().path() / "file/run";
  EXPECT_THAT(refusal(RunMode::start, ErrorKind::failed), AllOf(HasSubstr("file/run"), HasSubstr("ENOTDIR")));
}

TEST_F(RunFolderTest, RemovesWhatAKilledProcessLeft) {
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

class DamagedCheckpointTest : public RunFolderTest, public testing::WithParamInterface<Damage> {};

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

TEST_F(RunFolderTest, WhenAllAreDamagedNothingIsTouched) {
  { open(RunMode::start).checkpoint(snapshot_of(10)); }
  damage(run_ / "checkpoints/step-000010/model.safetensors", 0.5);
  EXPECT_THAT(refusal(RunMode::resume, ErrorKind::failed), AllOf(HasSubstr("step-000010"), HasSubstr("--fresh")));
  EXPECT_THAT(checkpoint_names(), ElementsAre("step-000010"));
}

TEST_F(RunFolderTest, AModelThatIsNotThereIsSaidSo) {
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

TEST_F(RunFolderTest, PreviewsAreReadByPillow) {
  RunFolder run = open(RunMode::start);
  ValidationRecord record = validation_of(100, 30);
  record.preview = torch::tensor({-1.0F, 0.0F, 0.5F, 1.0F, 2.0F, 0.25F}).view({3, 1, 2});
  run.validation(record);
  const fs::path gray = folder().path() / "gray.png";
  write_png(gray, torch::arange(6).view({1, 2, 3}) / 255.0);
  const std::string script =
      "import sys; from PIL import Image\n"
      "for p in sys.argv[1:]:\n i = Image.open(p); print(i.mode, i.size, list(i.tobytes()))";
  const ProcessResult read =
      run_process({REELGRAD_TEST_PYTHON, "-c", script, (run_ / "preview/step-000100.png").string(), gray.string()},
                  std::chrono::seconds(60));
  EXPECT_EQ(read.err, "");
  EXPECT_EQ(read.out, "RGB (2, 1) [0, 128, 255, 0, 255, 64]\nL (3, 2) [0, 1, 2, 3, 4, 5]\n");
}

TEST_F(RunFolderTest, TheLogOfTheRunHoldsWhatIsSaid) {
  RunFolder run = open(RunMode::start);
  log::info("hello from the run");
  EXPECT_THAT(read_file(run_ / "log.txt"), HasSubstr("hello from the run"));
}

}  // namespace
}  // namespace reelgrad
