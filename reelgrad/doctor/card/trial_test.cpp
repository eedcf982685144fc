#include "reelgrad/doctor/card/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reelgrad/doctor/card/card_figures.h"
#include "reelgrad/doctor/card/driver.h"
#include "reelgrad/doctor/card/driver_trial.h"
#include "reelgrad/doctor/testing/fake_driver.h"

namespace reelgrad {
namespace {

using test::FakeAnswers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The facts of a fake driver's cards, tried.
Facts tried(const FakeAnswers& answers = {}) {
  Facts facts = test::fake_facts(answers);
  try_cards(facts, {.environment = test::fake_environment(answers), .program = REELGRAD_TEST_PROBE});
  return facts;
}

TrialFacts first_trial(const FakeAnswers& answers) {
  const Facts facts = tried(answers);
  return facts.devices.empty() ? TrialFacts{} : facts.devices[0].trial;
}

TEST(CardsTrial, RunsOnEachCard) {
  const Facts facts = tried({{"CARDS", "2"}});
  ASSERT_THAT(facts.devices, SizeIs(2));
  for (const DeviceFacts& card : facts.devices) {
    EXPECT_EQ(card.trial.driver, Outcome::ok);
    EXPECT_EQ(card.trial.engine, Outcome::ok);
    EXPECT_EQ(card.trial.error, "");
    // By the fake's clock 64 MiB take 5 ms.
    EXPECT_NEAR(card.trial.to_card_gbs, 13.42, 0.01);
    EXPECT_NEAR(card.trial.from_card_gbs, 13.42, 0.01);
    EXPECT_NEAR(card.trial.card_memory_gbs, 26.84, 0.01);
    EXPECT_DOUBLE_EQ(card.trial.half_matmul_tflops, 12.5);
    EXPECT_DOUBLE_EQ(card.trial.half_convolution_tflops, 10.25);
  }
}

TEST(CardsTrial, NamesTheCallThatFailed) {
  TrialFacts trial = first_trial({{"ALLOCATE", "2"}});
  EXPECT_EQ(trial.driver, Outcome::failed);
  EXPECT_EQ(trial.engine, Outcome::not_run);
  EXPECT_EQ(trial.error, "cuMemAlloc_v2 says 2 (CUDA_ERROR_OUT_OF_MEMORY)");
  trial = first_trial({{"SYNCHRONIZE", "700"}});
  EXPECT_EQ(trial.error, "cuCtxSynchronize says 700 (CUDA_ERROR_ILLEGAL_ADDRESS)");
  trial = first_trial({{"CONTEXT", "999"}});
  EXPECT_EQ(trial.error, "cuDevicePrimaryCtxRetain says 999 (CUDA_ERROR_UNKNOWN)");
}

TEST(CardsTrial, SeesOneWrongBit) {
  const TrialFacts trial = first_trial({{"WRONG_WORD", "12345"}});
  EXPECT_EQ(trial.driver, Outcome::failed);
  EXPECT_THAT(trial.error, HasSubstr("(word 12345 of 16777216)"));
}

TEST(CardsTrial, KeepsTheDriversFiguresWhenTheEngineCrashes) {
  const TrialFacts trial = first_trial({{"ENGINE", "crash"}});
  EXPECT_EQ(trial.driver, Outcome::ok);
  EXPECT_GT(trial.to_card_gbs, 0);
  EXPECT_EQ(trial.engine, Outcome::crashed);
  EXPECT_EQ(trial.error, "killed by signal 11 (SIGSEGV)");
}

TEST(CardsTrial, LeavesCardsWithAnObstacleAlone) {
  for (const FakeAnswers& obstacle :
       {FakeAnswers{{"COMPUTE_MODE", "2"}}, FakeAnswers{{"COMPUTE_MODE", "3"}, {"COMPUTING", "4000000:100"}},
        FakeAnswers{{"USED_MB", "12000"}}}) {
    const TrialFacts trial = first_trial(obstacle);
    EXPECT_EQ(trial.driver, Outcome::not_run);
    EXPECT_EQ(trial.engine, Outcome::not_run);
  }
  EXPECT_EQ(first_trial({{"COMPUTE_MODE", "3"}}).driver, Outcome::ok);
}

TEST(CardsTrial, TakesTheLinkAndRareReasonsFromUnderLoad) {
  const FakeAnswers idle{{"PCIE", "1"}, {"THROTTLE", "1"}};
  Facts facts = test::fake_facts(idle);
  const FakeAnswers working{{"PCIE", "4"}, {"THROTTLE", "68"}, {"CLOCK", "1800"}};  // sw_power_cap, hw_thermal_slowdown
  try_cards(facts, {.environment = test::fake_environment(working), .program = REELGRAD_TEST_PROBE});
  ASSERT_THAT(facts.devices, SizeIs(1));
  EXPECT_EQ(facts.devices[0].pcie_generation, 4);
  EXPECT_EQ(facts.devices[0].clock_mhz, 1800);
  EXPECT_THAT(facts.devices[0].throttle_reasons, ElementsAre("gpu_idle", "hw_thermal_slowdown"));
}

TEST(CardsTrialGpu, DriverPartWorksAndIsPlausible) {
  Facts facts;
  probe_driver(facts);
  if (facts.devices.empty()) GTEST_SKIP() << "needs a CUDA card: " << facts.driver.error;
  const DeviceFacts& card = facts.devices[0];
  const TrialFacts trial = try_driver(card.uuid);
  ASSERT_EQ(trial.driver, Outcome::ok) << trial.error;
  // Half of what a PCIe link of the first generation with four lanes should do, and what no link of today carries.
  EXPECT_GT(trial.to_card_gbs, 0.5 * pcie_gbs(1, 4));
  EXPECT_LT(trial.to_card_gbs, 1000);
  EXPECT_GT(trial.from_card_gbs, 0.5 * pcie_gbs(1, 4));
  EXPECT_LT(trial.from_card_gbs, 1000);
  const auto expected = expected_figures(card.name);
  if (!expected) GTEST_SKIP() << "no figures of a " << card.name;
  EXPECT_GT(trial.card_memory_gbs, 0.5 * expected->memory_gbs);
  EXPECT_LT(trial.card_memory_gbs, 1.1 * expected->memory_gbs);
}

TEST(CardsTrialGpu, DriverPartNamesACardThatIsNotThere) {
  Facts facts;
  probe_driver(facts);
  if (facts.devices.empty()) GTEST_SKIP() << "needs a CUDA card: " << facts.driver.error;
  const TrialFacts trial = try_driver("GPU-01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(trial.driver, Outcome::failed);
  EXPECT_EQ(trial.error, "CUDA shows no device GPU-01234567-89ab-cdef-0123-456789abcdef");
}

}  // namespace
}  // namespace reelgrad
