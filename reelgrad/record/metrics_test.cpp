// What is written for readers: metrics.jsonl, TensorBoard's events, previews.
#include "reelgrad/record/metrics.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <fstream>
#include <limits>
#include <sstream>

#include "reelgrad/base/process.h"
#include "reelgrad/record/event_file.h"
#include "reelgrad/record/run_folder.h"
#include "reelgrad/record/testing.h"

namespace reelgrad {
namespace {

using namespace testing_record;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class MetricsTest : public RunFolderTest {};

TEST_F(MetricsTest, MetricsHaveTheirKeysInOrder) {
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

TEST_F(MetricsTest, MetricsOfAdversarialTrainingHaveTheirKeysInOrder) {
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

TEST_F(MetricsTest, ResumeCutsTheMetricsBackToItsCheckpoint) {
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

TEST(Crc32c, IsThatOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

// What a run wrote after the checkpoint that it goes on from is void; two files lie in the folder then.
TEST_F(MetricsTest, EventsAreReadByTensorBoard) {
  {
    RunFolder run = open(RunMode::start);
    run.step({.step = 10, .loss = 0.75, .losses = {{"l1", 0.5}, {"gan", 0.25}}, .learning_rate = 1e-4});
    run.validation(validation_of(10, 31.5));
    run.checkpoint(snapshot_of(10));
    run.step({.step = 20, .loss = 7});
  }
  {
    RunFolder run = open(RunMode::resume);
    run.step({.step = 30,
              .loss = std::numeric_limits<double>::quiet_NaN(),  // the discriminator alone
              .discriminator = AdversarialRecord{.loss = 1.25, .real = 0.5}});
  }
  const std::string script =
      "import sys\n"
      "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
      "events = EventAccumulator(sys.argv[1])\n"
      "events.Reload()\n"
      "for tag in sorted(events.Tags()['scalars']):\n"
      "    print(tag, [(e.step, round(e.value, 6)) for e in events.Scalars(tag)])\n";
  const ProcessResult read = run_process({REELGRAD_TEST_PYTHON, "-c", script, run_.string()}, std::chrono::seconds(60));
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_THAT(read.out,
              AllOf(HasSubstr("train/loss [(10, 0.75)]\n"), HasSubstr("train/losses/gan [(10, 0.25)]\n"),
                    HasSubstr("train/lr [(10, 0.0001), (30, 0.0)]\n"), HasSubstr("discriminator/loss [(30, 1.25)]\n"),
                    HasSubstr("discriminator/real [(30, 0.5)]\n"), HasSubstr("validation/psnr_rgb [(10, 31.5)]\n"),
                    HasSubstr("bicubic/ssim_y [(10, 0.81)]\n")));
}

TEST_F(MetricsTest, EventsAreLeftOutWhereTheyAreNotWanted) {
  config_.run.tensorboard = false;
  { open(RunMode::start).step({.step = 1}); }
  for (const fs::directory_entry& entry : fs::directory_iterator(run_))
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("tfevents")));
}

TEST_F(MetricsTest, PreviewsAreReadByPillow) {
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

}  // namespace
}  // namespace reelgrad
