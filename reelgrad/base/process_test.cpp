#include "reelgrad/base/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

ProcessResult shell(const std::string& script, std::chrono::milliseconds timeout = 10s,
                    const std::vector<std::string>& environment = {}) {
  return run_process({"sh", "-c", script}, timeout, environment);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(RunProcess, CapturesBothOutputsAndTheExitCode) {
  const auto result = shell("echo out; echo err >&2; exit 7");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST(RunProcess, CapturesMoreThanAPipeHolds) {
  const auto result = shell("head -c 3000000 /dev/zero; head -c 200000 /dev/zero >&2");
  EXPECT_EQ(result.out.size(), 3'000'000u);
  EXPECT_EQ(result.err.size(), 200'000u);
}

TEST(RunProcess, EndsTheWholeGroupAtTheTimeLimit) {
  const auto start = std::chrono::steady_clock::now();
  const auto result = shell("echo begun; sleep 30 & sleep 30", 200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + 9);
  EXPECT_EQ(result.out, "begun\n");
}

TEST(RunProcess, TheLimitAlsoHoldsForAChildThatClosedItsOutputs) {
  const auto result = shell("exec >&- 2>&-; sleep 30", 200ms);
  EXPECT_TRUE(result.timed_out);
}

TEST(RunProcess, ASignalIsAnExitCode) {
  EXPECT_EQ(shell("kill -TERM $$").exit_code, 128 + 15);
}

TEST(RunProcess, AddsAndReplacesVariables) {
  ::setenv("REELGRAD_TEST_A", "ours", 1);
  ::setenv("REELGRAD_TEST_B", "ours", 1);
  const auto result = shell("echo $REELGRAD_TEST_A $REELGRAD_TEST_B", 10s, {"REELGRAD_TEST_A=theirs"});
  EXPECT_EQ(result.out, "theirs ours\n");
}

TEST(RunProcess, InheritsNoOtherDescriptorAndNoInput) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC, as libraries do
  const auto result = shell("cat; ls /proc/self/fd | wc -l");
  ::close(leaked);
  EXPECT_EQ(result.out, "4\n");  // the three standard ones and ls's own folder
}

TEST(RunProcess, AMissingProgramIsNamed) {
  try {
    run_process({"reelgrad-no-such-program"}, 1s);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_THAT(error.what(), HasSubstr("\"reelgrad-no-such-program\": no such program"));
  }
}

TEST(PipedProcess, ReadsWhatIsWritten) {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "piped";
  const std::string text(3'000'000, 'x');
  PipedProcess child({"sh", "-c", "cat > \"$0\"; echo done >&2; exit 3", file.string()});
  child.write(bytes_of(text));
  child.close_input();
  EXPECT_EQ(child.wait(), 3);
  EXPECT_EQ(child.error_output(), "done\n");
  EXPECT_EQ(read_file(file), text);
}

TEST(PipedProcess, WritingToADeadChildThrowsItsWords) {
  PipedProcess child({"sh", "-c", "echo 'unknown encoder' >&2; exit 5"});
  const std::string text(1 << 16, 'x');
  try {
    for (int i = 0; i < 100; ++i) child.write(bytes_of(text));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sh ended early with exit code 5"), EndsWith("unknown encoder\n")));
  }
}

TEST(PipedProcess, KeepsTheEndOfALongErrorOutput) {
  PipedProcess child({"sh", "-c", "seq 1 20000 >&2"});
  EXPECT_EQ(child.wait(), 0);
  EXPECT_LE(child.error_output().size(), 8u << 10);
  EXPECT_THAT(child.error_output(), EndsWith("\n20000\n"));
}

TEST(PipedProcess, IsKilledWhenDroppedAndCanBeMoved) {
  const auto start = std::chrono::steady_clock::now();
  {
    PipedProcess first({"sleep", "30"});
    PipedProcess second(std::move(first));
    second = PipedProcess({"sleep", "31"});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(FindProgram, LooksOnThePath) {
  EXPECT_THAT(find_program("sh"), EndsWith("/sh"));
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  EXPECT_EQ(find_program("/tmp"), "");
  EXPECT_EQ(find_program("reelgrad-no-such-program"), "");
  EXPECT_EQ(find_program(""), "");
  EXPECT_THAT(find_program("sh", "/nowhere:/usr/bin:/bin"), EndsWith("/bin/sh"));
  EXPECT_EQ(find_program("sh", "/nowhere"), "");
}

}  // namespace
}  // namespace reelgrad
