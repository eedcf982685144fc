#include "reelgrad/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "reelgrad/base/console.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string stderr_of(const std::function<void()>& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, PlainLinesHaveAPrefixOnlyForTrouble) {
  const std::string text = stderr_of([] {
    log::info("read 3 clips");
    log::warning("slow disk");
    log::error("no clip");
    log::debug("hidden");
  });
  EXPECT_EQ(text, "read 3 clips\nwarning: slow disk\nerror: no clip\n");
}

TEST(Log, WarnsOnceAKey) {
  const std::string text = stderr_of([] {
    for (int i = 0; i < 3; ++i) log::warn_once("log_test.matrix", "no matrix");
  });
  EXPECT_EQ(text, "warning: no matrix\n");
}

TEST(Log, ASinkReplacesStderr) {
  std::vector<std::string> seen;
  log::set_sink([&](log::Level, std::string_view message) { seen.emplace_back(message); });
  const std::string text = stderr_of([] { log::info("hello"); });
  log::set_sink(nullptr);
  EXPECT_EQ(text, "");
  EXPECT_THAT(seen, ::testing::ElementsAre("hello"));
}

TEST(Log, AFileGetsEveryMessageWithItsTimeWhileTheGuardLives) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "log.txt";
  log::set_sink([](log::Level, std::string_view) {});
  {
    log::FileGuard guard = log::add_file(path.string());
    log::warning("odd {braces} stay");
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([] { log::info("from a thread"); });
    threads.clear();
    log::FileGuard moved = std::move(guard);
    log::debug("last");
  }
  log::info("after");
  log::set_sink(nullptr);
  const std::string text = read_file(path);
  EXPECT_THAT(text, MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+ warning: odd .braces. stay\n(.*\n){5}"));
  EXPECT_THAT(text, HasSubstr(" debug: last\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("after")));
}

TEST(Log, AnUnwritableFileIsAnError) {
  EXPECT_THROW(auto guard = log::add_file("/proc/reelgrad-no-such-folder/log.txt"), Error);
}

TEST(Progress, OffATerminalPrintsPlainLinesAtMostEveryInterval) {
  const std::string text = stderr_of([] {
    console::Progress progress(std::chrono::milliseconds(50));
    progress.update("too early");
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    progress.update("frames", 50, 200, "fps");
    progress.update("too soon");
  });
  EXPECT_THAT(text, MatchesRegex("frames 50/200 \\(25%\\), [0-9.e+]+ fps, [0-9]+ s left\n"));
}

}  // namespace
}  // namespace reelgrad
