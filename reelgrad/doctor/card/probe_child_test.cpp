#include "reelgrad/doctor/card/probe_child.h"

#include <gtest/gtest.h>

#include <chrono>

#include "reelgrad/doctor/testing/fake_driver.h"

namespace reelgrad {
namespace {

using namespace std::chrono_literals;
using test::ask_fake;
using test::FakeDriver;

TEST(ProbeChild, ALibraryThatCrashesTakesOnlyTheChildDown) {
  for (const char* library : {"CUDA_ON_LOAD", "NVML_ON_LOAD"}) {
    const ProbeAnswer answer = ask_fake({"driver"}, {{library, "crash"}});
    EXPECT_EQ(answer.outcome, Outcome::crashed);
    EXPECT_EQ(answer.error, "killed by signal 11 (SIGSEGV)");
    EXPECT_EQ(answer.json, "");
  }
}

TEST(ProbeChild, ALibraryThatHangsIsWaitedForNoLongerThanTheLimit) {
  const auto start = std::chrono::steady_clock::now();
  const ProbeAnswer answer = ask_fake({"driver"}, {{"CUDA_ON_LOAD", "hang"}}, FakeDriver::whole, 500ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_EQ(answer.outcome, Outcome::timed_out);
  EXPECT_EQ(answer.error, "no answer within 0.5 s");
}

TEST(ProbeChild, SaysWhyAChildHasNoAnswer) {
  ProbeAnswer answer = ask_fake({"nonsense"});
  EXPECT_EQ(answer.outcome, Outcome::failed);
  EXPECT_EQ(answer.error, "no such probe");
  answer = ask_fake({"silent"});
  EXPECT_EQ(answer.outcome, Outcome::failed);
  EXPECT_EQ(answer.error, "it printed no JSON");
  answer = ask_child("/nowhere/reelgrad", {"driver"}, 1s);
  EXPECT_EQ(answer.outcome, Outcome::failed);
  EXPECT_NE(answer.error, "");
}

TEST(ProbeChild, TakesTheLastLineAsTheAnswer) {
  const ProbeAnswer answer = ask_fake({"chatty"});
  EXPECT_EQ(answer.outcome, Outcome::ok);
  EXPECT_EQ(answer.json, "{\"fine\": true}");
}

TEST(ProbeChild, KnowsOnlyItsOwnProbes) {
  EXPECT_EQ(run_probe({}), "");
  EXPECT_EQ(run_probe({"trial"}), "");
  EXPECT_EQ(run_probe({"driver", "and more"}), "");
}

}  // namespace
}  // namespace reelgrad
