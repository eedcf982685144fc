// F1 and F2: a process that is killed while it saves, or whose volume fills up, leaves whole checkpoints only. The test
// runs its own binary again as that process.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <random>
#include <string_view>
#include <thread>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/record/checkpoint.h"
#include "reelgrad/record/testing.h"

namespace reelgrad {
namespace {

using namespace testing_record;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::int64_t kElements = 200'000;  // 2.4 MB a checkpoint
constexpr const char* kSaveFlag = "--save-checkpoints";

// Saves for ever, or until it cannot: says why, and how many checkpoints are whole then. Exit code 1.
int save_checkpoints(const fs::path& folder, RunMode mode, int keep_last) {
  try {
    Config config = run_config(folder);
    config.checkpoint.keep_last = keep_last;
    RunFolder run(config, {}, mode);
    const std::optional<Snapshot> from = run.resume_point();
    for (std::int64_t step = from ? from->step + 1 : 1;; ++step) {
      run.step({.step = step});
      run.checkpoint(snapshot_of(step, kElements));
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  int whole = 0;
  for (const CheckpointInfo& info : list_checkpoints(folder)) {
    whole += info.damage.empty() && is_whole(read_checkpoint(info.path), kElements);
  }
  std::fprintf(stderr, "%d whole of %zu\n", whole, step_folders(folder).size());
  return 1;
}

std::vector<std::string> saving(const fs::path& folder, RunMode mode, int keep_last = 3) {
  return {executable_path().string(), kSaveFlag, folder.string(), mode == RunMode::start ? "start" : "resume",
          std::to_string(keep_last)};
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::int64_t newest_step(const fs::path& run) {
  const std::vector<StepFolder> steps = step_folders(run);
  return steps.empty() ? 0 : steps.back().step;
}

// Runs it until it has saved something new, then kills it after a while.
void save_and_be_killed(const fs::path& run, RunMode mode, std::chrono::microseconds after) {
  const std::int64_t before = newest_step(run);
  PipedProcess child(saving(run, mode));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (newest_step(run) <= before) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << child.error_output();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(after);
}  // the destructor kills it

TEST(KilledRunSlowTest, EveryKillLeavesAWholeCheckpoint) {
  const test::TemporaryFolder folder;
  const fs::path run = folder / "run";
  std::mt19937 random(1);
  std::uniform_int_distribution<int> microseconds(0, 60'000);
  std::int64_t last = 0;
  for (int kill = 0; kill < 30; ++kill) {
    save_and_be_killed(run, kill == 0 ? RunMode::start : RunMode::resume,
                       std::chrono::microseconds(microseconds(random)));
    RunFolder resumed(run_config(run), {}, RunMode::resume);
    const std::optional<Snapshot> snapshot = resumed.resume_point();
    ASSERT_TRUE(snapshot);
    EXPECT_TRUE(is_whole(*snapshot, kElements)) << "step " << snapshot->step;
    EXPECT_GT(snapshot->step, last);
    last = snapshot->step;
    for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints")) {
      EXPECT_THAT(entry.path().filename().string(), testing::StartsWith("step-"));
    }
    for (const CheckpointInfo& info : list_checkpoints(run)) EXPECT_EQ(info.damage, "");
  }
}

TEST(FullVolume, TheNextSaveFailsCleanly) {
  const test::TemporaryFolder folder;
  // A volume that only this child sees.
  const std::string mount = "mount -t tmpfs -o size=24m tmpfs \"$0\" || exit 77; exec \"$@\"";
  const ProcessResult result =
      run_process(std::vector<std::string>{"unshare", "-m", "sh", "-c", mount, folder.path().string()} +
                      saving(folder / "run", RunMode::start, 1000),
                  std::chrono::seconds(60));
  if (result.exit_code == 77 || result.err.starts_with("unshare:")) {
    GTEST_SKIP() << "no volume of its own can be mounted here: " << result.err;
  }
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("cannot save the checkpoint " + (folder.path() / "run/checkpoints/step-").string()),
                    HasSubstr("ENOSPC"), HasSubstr(" bytes)"), testing::ContainsRegex("9 whole of 9|10 whole of 10")));
}

TEST(FullVolume, AFileThatCannotGrowLeavesTheOlderOnesWhole) {
  const test::TemporaryFolder folder;
  const fs::path run = folder / "run";
  { RunFolder(run_config(run), {}, RunMode::start).checkpoint(snapshot_of(1, kElements)); }
  // A limit of 512 KiB a file, told by an error rather than by a signal.
  const std::string limit = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"";
  const ProcessResult result =
      run_process(std::vector<std::string>{"sh", "-c", limit} + saving(run, RunMode::resume), std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr((run / "checkpoints/step-000002").string()), HasSubstr("EFBIG"),
                                HasSubstr(" bytes)"), HasSubstr("1 whole of 1")));
}

}  // namespace
}  // namespace reelgrad

int main(int argc, char** argv) {
  using reelgrad::RunMode;
  if (argc == 5 && argv[1] == std::string_view(reelgrad::kSaveFlag)) {
    const RunMode mode = argv[3] == std::string_view("start") ? RunMode::start : RunMode::resume;
    return reelgrad::save_checkpoints(argv[2], mode, std::stoi(argv[4]));
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
