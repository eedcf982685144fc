#include "reelgrad/record/run_folder.h"

#include <gmock/gmock.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/record/testing.h"

namespace reelgrad {
namespace {

using namespace testing_record;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

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

TEST_F(RunFolderTest, PretrainedWeightsThatResumingDoesNotReadAreWarnedOf) {
  std::vector<std::string> warned;
  log::set_sink([&](log::Level level, std::string_view message) {
    if (level == log::Level::warning) warned.emplace_back(message);
  });
  config_.loss.gan = 0.1;
  { open(RunMode::start); }
  config_.model.pretrained = config_.discriminator.pretrained = folder().write("first.pth", "");
  { open(RunMode::resume); }  // there is no checkpoint yet: they are read
  EXPECT_THAT(warned, testing::IsEmpty());
  EXPECT_FALSE(saved_networks(run_).network);

  { open(RunMode::resume).checkpoint(snapshot_of(5)); }
  config_.model.pretrained = config_.discriminator.pretrained = folder().write("other.pth", "");
  { open(RunMode::resume); }  // the checkpoint has no discriminator
  EXPECT_THAT(warned, ElementsAre(AllOf(HasSubstr("model.pretrained: "), HasSubstr("other.pth"),
                                        HasSubstr("of no effect, the run goes on from its checkpoint"))));

  warned.clear();
  Snapshot both = snapshot_of(6);
  both.discriminator = {{"conv0.weight", torch::zeros({1})}};
  { open(RunMode::resume).checkpoint(both); }
  EXPECT_TRUE(saved_networks(run_).discriminator);
  config_.discriminator.pretrained.clear();
  { open(RunMode::resume); }
  log::set_sink({});
  EXPECT_THAT(warned, ElementsAre(HasSubstr("discriminator.pretrained: ")));
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

TEST_F(RunFolderTest, TheLogOfTheRunHoldsWhatIsSaid) {
  RunFolder run = open(RunMode::start);
  log::info("hello from the run");
  EXPECT_THAT(read_file(run_ / "log.txt"), HasSubstr("hello from the run"));
}

}  // namespace
}  // namespace reelgrad
