#include "reelgrad/doctor/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reelgrad/doctor/healthy_facts.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> codes(const Facts& facts) {
  std::vector<std::string> found;
  for (const Finding& finding : diagnose(facts)) found.push_back(finding.code);
  return found;
}

Finding only_finding(const Facts& facts) {
  const auto findings = diagnose(facts);
  EXPECT_EQ(findings.size(), 1u);
  return findings.empty() ? Finding{} : findings.front();
}

Facts without_devices() {
  Facts facts = healthy_facts();
  facts.devices.clear();
  return facts;
}

TEST(Diagnose, AHealthyMachineHasNoFindings) {
  EXPECT_THAT(diagnose(healthy_facts()), IsEmpty());
  EXPECT_EQ(why_not(healthy_facts().devices[0], healthy_facts()), "");
}

TEST(Diagnose, NoCardIsAnInformation) {
  Facts facts = without_devices();
  facts.pci_cards.resize(0);
  facts.driver.cuda = 0;
  facts.driver.version = "";
  facts.driver.error = "libcuda.so.1: cannot open shared object file";
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "NO_CARD");
  EXPECT_EQ(finding.severity, Severity::info);
  EXPECT_THAT(finding.what, HasSubstr("on the processor"));
  // A variable left over from another machine changes nothing.
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0";
  EXPECT_EQ(only_finding(facts).code, "NO_CARD");
}

TEST(Diagnose, ACardWithoutADriver) {
  Facts facts = without_devices();
  facts.pci_cards.resize(2);
  facts.driver.cuda = 0;
  facts.driver.version = "";
  facts.driver.error = "libcuda.so.1: cannot open shared object file";
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "NO_DRIVER");
  EXPECT_EQ(finding.severity, Severity::error);
  EXPECT_THAT(finding.evidence, AllOf(HasSubstr("2 NVIDIA"), HasSubstr("libcuda.so.1")));
}

TEST(Diagnose, ADriverThatGivesNoCard) {
  Facts facts = without_devices();
  facts.driver.error = "cuInit says 999 (CUDA_ERROR_UNKNOWN)";
  EXPECT_EQ(only_finding(facts).code, "CARD_UNAVAILABLE");
  EXPECT_THAT(only_finding(facts).fix, HasSubstr("Restart"));
  facts.environment["CUDA_VISIBLE_DEVICES"] = "7";
  EXPECT_THAT(only_finding(facts).fix, HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(only_finding(facts).evidence, HasSubstr("CUDA_VISIBLE_DEVICES=7"));
}

struct DriverCase {
  const char* driver;
  int level;
  const char* cuda;
  int needed;  // 0: new enough
};

TEST(Diagnose, TheDriverMustBeNewEnoughForTorchsCuda) {
  for (const DriverCase& c : std::initializer_list<DriverCase>{{"580.65.06", 13000, "13.0", 0},
                                                               {"575.57", 12090, "13.0", 580},
                                                               {"590.1", 13010, "12.8", 0},
                                                               {"525.60.13", 12000, "12.8", 0},
                                                               {"520.61", 11080, "12.8", 525},
                                                               {"470.82", 11040, "11.8", 0},
                                                               {"418.40", 10010, "11.8", 450},
                                                               {"", 12020, "13.0", 580},
                                                               {"", 13000, "13.0", 0}}) {
    Facts facts = healthy_facts();
    facts.driver.version = c.driver;
    facts.driver.cuda = c.level;
    facts.torch.cuda = c.cuda;
    const std::string name = std::string(c.driver) + " for " + c.cuda;
    if (c.needed == 0) {
      EXPECT_THAT(diagnose(facts), IsEmpty()) << name;
      continue;
    }
    const Finding finding = only_finding(facts);
    EXPECT_EQ(finding.code, "DRIVER_TOO_OLD") << name;
    EXPECT_THAT(finding.fix, HasSubstr(std::to_string(c.needed))) << name;
    EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr(std::to_string(c.needed))) << name;
  }
}

TEST(Diagnose, TheDriversCudaLevelIsDecoded) {
  Facts facts = healthy_facts();
  facts.driver.version = "418.40";
  facts.driver.cuda = 10010;
  EXPECT_THAT(only_finding(facts).evidence, AllOf(HasSubstr("driver 418.40"), HasSubstr("CUDA up to 10.1"),
                                                  HasSubstr("needs CUDA 13.0"), HasSubstr("580 or newer")));
}

TEST(Diagnose, AnOlderDriverIsOfferedTheOlderCudaBuildOnlyWhenItRunsThat) {
  Facts facts = healthy_facts();
  facts.driver.version = "550.90";
  EXPECT_THAT(only_finding(facts).fix, HasSubstr("--cuda 12.8"));
  facts.driver.version = "470.82";
  EXPECT_THAT(only_finding(facts).fix, Not(HasSubstr("--cuda")));
}

TEST(Diagnose, ACardThatIsTooOld) {
  Facts facts = healthy_facts();
  facts.devices[0].compute_major = 7;
  facts.devices[0].compute_minor = 0;
  EXPECT_EQ(only_finding(facts).code, "CARD_TOO_OLD");
  EXPECT_EQ(only_finding(facts).severity, Severity::error);
  EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr("7.0 is below 7.5"));
  // Beside one that runs it is only a warning.
  facts.devices.push_back(healthy_facts().devices[0]);
  EXPECT_EQ(only_finding(facts).severity, Severity::warning);
}

TEST(Diagnose, ACardThatThisBuildHasNoKernelsFor) {
  Facts facts = healthy_facts();
  facts.devices[0].compute_major = 7;
  facts.devices[0].compute_minor = 5;
  EXPECT_EQ(only_finding(facts).code, "CARD_NOT_IN_BUILD");
  EXPECT_THAT(only_finding(facts).fix, HasSubstr("--preset full"));
  EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr("no kernels"));
  facts.build.architectures = "";
  EXPECT_THAT(diagnose(facts), IsEmpty());
}

TEST(Diagnose, TorchIsMissing) {
  Facts facts = healthy_facts();
  facts.torch = {.error = "REELGRAD_TORCH=/none has no lib/libtorch.so"};
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "TORCH_MISSING");
  EXPECT_THAT(finding.evidence, HasSubstr("REELGRAD_TORCH=/none"));
  EXPECT_THAT(finding.fix, HasSubstr("torch==2.11.0 "));
  EXPECT_NE(why_not(facts.devices[0], facts), "");
}

TEST(Diagnose, ACpuOnlyBuildIsNeverBlamedOnTheDriver) {
  Facts facts = healthy_facts();
  facts.torch.version = "2.11.0+cpu";
  facts.torch.cuda = "";
  facts.driver.version = "470.82";
  facts.driver.cuda = 11040;
  const Finding finding = only_finding(facts);
  EXPECT_EQ(finding.code, "CPU_ONLY_BUILD");
  EXPECT_THAT(finding.fix, Not(HasSubstr("driver")));
  facts.devices.clear();
  facts.pci_cards.resize(0);
  facts.driver.cuda = 0;
  EXPECT_THAT(codes(facts), ElementsAre("CPU_ONLY_BUILD", "NO_CARD"));
}

TEST(Diagnose, AnotherVersionOfTorch) {
  Facts facts = healthy_facts();
  facts.torch.version = "2.10.0+cu130";
  EXPECT_EQ(only_finding(facts).code, "TORCH_VERSION_MISMATCH");
  EXPECT_THAT(why_not(facts.devices[0], facts), HasSubstr("2.10.0+cu130 instead of 2.11.0+cu130"));
}

TEST(Diagnose, VideoPrograms) {
  Facts facts = healthy_facts();
  facts.vapoursynth = {.error = "no libvsscript.so"};
  EXPECT_EQ(only_finding(facts).code, "VAPOURSYNTH_MISSING");
  EXPECT_EQ(only_finding(facts).evidence, "no libvsscript.so");
  facts.vapoursynth = healthy_facts().vapoursynth;
  facts.ffmpeg.version = "";
  EXPECT_EQ(only_finding(facts).code, "FFMPEG_MISSING");
  EXPECT_EQ(only_finding(facts).severity, Severity::warning);
}

TEST(Diagnose, AnEmptyMachineGetsErrorsFirstAndAFixForEach) {
  EXPECT_THAT(codes(Facts{}), ElementsAre("TORCH_MISSING", "VAPOURSYNTH_MISSING", "FFMPEG_MISSING", "NO_CARD"));
  for (const Finding& finding : diagnose(Facts{})) {
    EXPECT_NE(finding.what, "") << finding.code;
    EXPECT_EQ(finding.fix.empty(), finding.severity == Severity::info) << finding.code;
  }
}

TEST(Kernels, FollowTheRuleOfCodeAndPtx) {
  EXPECT_TRUE(has_kernels_for(8, 6, "80-real"));
  EXPECT_FALSE(has_kernels_for(8, 0, "86-real"));
  EXPECT_FALSE(has_kernels_for(9, 0, "80-real"));
  EXPECT_TRUE(has_kernels_for(9, 0, "80"));
  EXPECT_TRUE(has_kernels_for(12, 1, "75-real,80-virtual"));
  EXPECT_FALSE(has_kernels_for(12, 0, "90-real"));
  EXPECT_TRUE(has_kernels_for(9, 0, "90a-real"));
  EXPECT_FALSE(has_kernels_for(10, 0, "90a"));
  EXPECT_FALSE(has_kernels_for(7, 5, "80,90a-real"));
  EXPECT_TRUE(has_kernels_for(7, 5, "75-real,80,86-real,89-real,90-real,90a-real,120"));
}

}  // namespace
}  // namespace reelgrad
