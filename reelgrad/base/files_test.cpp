#include "reelgrad/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Files : public ::testing::Test {
 protected:
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    return names;
  }

  test::TemporaryFolder temporary_{"é中"};
  const fs::path folder_ = temporary_.path();
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    return error.what();
  }
  return "nothing was thrown";
}

// Runs in a child that may write at most `bytes` to a file: as good as a full disk, and needs no rights.
int exit_code_with_file_limit(rlim_t bytes, const std::function<bool()>& succeeds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(succeeds() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(Files, WritesAndReadsBytesAsTheyAre) {
  const std::string bytes("a\0b\r\n\xff", 6);
  write_file_atomically(folder_ / "x.bin", bytes);
  EXPECT_EQ(read_file(folder_ / "x.bin"), bytes);
  write_file_atomically(folder_ / "x.bin", "new");
  EXPECT_EQ(read_file(folder_ / "x.bin"), "new");
  EXPECT_THAT(listing(), ::testing::ElementsAre("x.bin"));
}

TEST_F(Files, AFailedWriteLeavesTheOldFileAndNothingElse) {
  write_file_atomically(folder_ / "x.bin", "old");
  const int code = exit_code_with_file_limit(1'000, [&] {
    const std::string message = message_of([&] { write_file_atomically(folder_ / "x.bin", std::string(5'000, 'x')); });
    return message == "cannot write " + (folder_ / "x.bin").string() + " (5000 bytes): EFBIG (File too large)";
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_file(folder_ / "x.bin"), "old");
  EXPECT_THAT(listing(), ::testing::ElementsAre("x.bin"));
}

TEST_F(Files, AFullDiskIsNamed) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  EXPECT_EQ(message_of([] { append_line("/dev/full", "four"); }),
            "cannot write /dev/full (5 bytes): ENOSPC (No space left on device)");
}

TEST_F(Files, AppendsLines) {
  append_line(folder_ / "log.jsonl", "one");
  append_line(folder_ / "log.jsonl", "two");
  EXPECT_EQ(read_file(folder_ / "log.jsonl"), "one\ntwo\n");
}

TEST_F(Files, MissingFilesAndFoldersAreNamed) {
  EXPECT_THAT(message_of([&] { read_file(folder_ / "none"); }), AllOf(HasSubstr("none: ENOENT"), HasSubstr("read")));
  EXPECT_THAT(message_of([&] { read_file(folder_); }), HasSubstr("EISDIR"));
  EXPECT_THAT(message_of([&] { write_file_atomically(folder_ / "no" / "x", "1"); }), HasSubstr("ENOENT"));
  append_line(folder_ / "file", "");
  EXPECT_THAT(message_of([&] { PendingFolder pending(folder_ / "file" / "sub"); }), HasSubstr("ENOTDIR"));
}

TEST_F(Files, APendingFileAppearsOnlyWhenCommitted) {
  const fs::path video = folder_ / "out.mkv";
  {
    PendingFile pending(video);
    EXPECT_EQ(pending.path().extension(), ".mkv");
    EXPECT_TRUE(PendingFolder::is_leftover(pending.path()));
    std::ofstream(pending.path()) << "half";
    EXPECT_FALSE(fs::exists(video));
  }
  EXPECT_TRUE(listing().empty());
  PendingFile pending(video);
  std::ofstream(pending.path()) << "whole";
  pending.commit();
  EXPECT_EQ(read_file(video), "whole");
  EXPECT_FALSE(PendingFolder::is_leftover(video));
}

TEST_F(Files, APendingFolderReplacesTheOldOneWhole) {
  const fs::path final = folder_ / "step-000100";
  for (const char* text : {"first", "second"}) {
    PendingFolder pending(final);
    fs::create_directories(pending.path() / "sub");
    std::ofstream(pending.path() / "sub" / text) << text;
    pending.commit();
  }
  EXPECT_FALSE(fs::exists(final / "sub" / "first"));
  EXPECT_EQ(read_file(final / "sub" / "second"), "second");
  EXPECT_THAT(listing(), ::testing::ElementsAre("step-000100"));
}

TEST_F(Files, AKilledProcessLeavesOnlyNamesKnownAsLeftovers) {
  const pid_t child = ::fork();
  if (child == 0) {
    PendingFolder pending(folder_ / "step-000100");
    PendingFile file(folder_ / "out.mkv");
    append_line(pending.path() / "weights", "half");
    append_line(file.path(), "half");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  const auto left = listing();
  EXPECT_EQ(left.size(), 2u);
  for (const std::string& name : left) EXPECT_TRUE(PendingFolder::is_leftover(folder_ / name)) << name;
}

TEST_F(Files, HashesAsXxh128sumDoes) {
  // The value that `xxh128sum` prints for the empty input, and for 2,000,003 bytes when it is installed.
  EXPECT_EQ(xxh3_128_hex(std::span<const std::byte>{}), "99aa06d3014798d86001c324468d497f");
  std::string bytes(2'000'003, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  write_file_atomically(folder_ / "big", bytes);
  const std::string hash = xxh3_128_hex(folder_ / "big");
  EXPECT_EQ(hash, xxh3_128_hex(std::as_bytes(std::span(bytes))));
  if (find_program("xxh128sum").empty()) return;
  const auto result = run_process({"xxh128sum", (folder_ / "big").string()}, std::chrono::seconds(10));
  EXPECT_THAT(result.out, ::testing::StartsWith(hash));
}

TEST_F(Files, KnowsItsPlaces) {
  EXPECT_EQ(executable_path().filename(), "base_test");
  EXPECT_EQ(this_library_path(), executable_path());
  EXPECT_GT(free_bytes(folder_ / "not" / "yet"), 0u);
  ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  EXPECT_EQ(cache_folder(), folder_ / "reelgrad");
  EXPECT_TRUE(fs::is_directory(folder_ / "reelgrad"));
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  ::setenv("HOME", folder_.c_str(), 1);
  EXPECT_EQ(cache_folder(), folder_ / ".cache" / "reelgrad");
}

TEST(Errno, NamesNumberAndMeaning) {
  EXPECT_EQ(errno_name(ENOSPC), "ENOSPC (No space left on device)");
  EXPECT_EQ(errno_name(99'999), "error 99999");
}

}  // namespace
}  // namespace reelgrad
