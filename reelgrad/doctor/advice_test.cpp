#include "reelgrad/doctor/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reelgrad {
namespace {

using ::testing::HasSubstr;

TEST(Advice, TheLeastDriverOfEachCuda) {
  for (const auto& [cuda, driver] : std::initializer_list<std::pair<const char*, int>>{
           {"13.0", 580}, {"13.1", 580}, {"12.8", 525}, {"12.0", 525}, {"11.8", 450}, {"11.0", 450}, {"10.2", 440},
           {"10.1", 418}, {"10.0", 410}, {"9.0", 384}}) {
    EXPECT_EQ(least_driver(cuda), driver) << cuda;
  }
  for (const char* unknown : {"", "14.0", "10.9", "cuda"}) EXPECT_EQ(least_driver(unknown), std::nullopt) << unknown;
}

TEST(Advice, DriversLevelsAreDecoded) {
  EXPECT_EQ(cuda_level(10010), "10.1");
  EXPECT_EQ(cuda_level(13000), "13.0");
  EXPECT_EQ(cuda_level(12090), "12.9");
}

struct PairCase {
  int driver;
  Capability card;
  const char* torch;  // empty: none
  const char* setup = "";
};

TEST(Advice, ThePairThatFitsDriverAndCard) {
  for (const PairCase& c : std::initializer_list<PairCase>{{580, {8, 9}, "2.11.0", "scripts/setup.sh"},
                                                           {590, {12, 0}, "2.11.0", "scripts/setup.sh"},
                                                           {0, {7, 5}, "2.11.0", "scripts/setup.sh"},
                                                           {579, {8, 6}, "2.10.0", "scripts/setup.sh --cuda 12.8"},
                                                           {525, {8, 0}, "2.10.0", "scripts/setup.sh --cuda 12.8"},
                                                           {570, {12, 1}, "2.10.0", "scripts/setup.sh --cuda 12.8"},
                                                           {524, {8, 0}, ""},
                                                           {580, {7, 0}, ""},
                                                           {580, {6, 1}, ""}}) {
    const TorchPair* pair = best_pair(c.driver, {c.card});
    EXPECT_EQ(pair ? pair->torch : "", c.torch) << c.driver << " " << to_string(c.card);
    EXPECT_EQ(pair ? pair->setup : "", c.setup) << c.driver << " " << to_string(c.card);
  }
}

TEST(Advice, AllCardsMustFit) {
  EXPECT_EQ(best_pair(580, {{8, 9}, {6, 1}}), nullptr);
  EXPECT_NE(best_pair(580, {{8, 9}, {12, 0}}), nullptr);
}

TEST(Advice, TheIndexOfPackagesForSomebodysOwnPyTorch) {
  const auto index = [](int driver, Capability card) {
    const TorchIndex* found = best_index(driver, {card});
    return found ? std::string(found->url.substr(found->url.rfind('/') + 1)) : "";
  };
  EXPECT_EQ(index(580, {8, 6}), "cu130");
  EXPECT_EQ(index(550, {8, 6}), "cu128");
  EXPECT_EQ(index(580, {6, 1}), "cu126");  // the stock build for 12.8 starts at 7.0
  EXPECT_EQ(index(580, {7, 0}), "cu128");
  EXPECT_EQ(index(470, {8, 6}), "cu118");
  EXPECT_EQ(index(470, {12, 0}), "");
  EXPECT_EQ(index(580, {3, 5}), "");
}

TEST(Advice, ForwardCompatibilityIsForDataCentreCards) {
  EXPECT_EQ(compat_package("13.0"), "cuda-compat-13-0");
  EXPECT_TRUE(may_use_compat("NVIDIA A100-SXM4-80GB", 535));
  EXPECT_TRUE(may_use_compat("Tesla T4", 550));
  EXPECT_TRUE(may_use_compat("NVIDIA H100 80GB HBM3", 570));
  EXPECT_FALSE(may_use_compat("NVIDIA A100-SXM4-80GB", 470));
  EXPECT_FALSE(may_use_compat("NVIDIA GeForce RTX 4090", 550));
  EXPECT_FALSE(may_use_compat("NVIDIA RTX A4000", 550));
}

TEST(Advice, VersionsAreComparedByNumbers) {
  EXPECT_TRUE(is_older("2.4", "2.36"));
  EXPECT_FALSE(is_older("2.36", "2.36"));
  EXPECT_FALSE(is_older("3.4.30", "3.4.19"));
  EXPECT_TRUE(is_older("1.3.290", "1.4"));
  EXPECT_FALSE(is_older("1.4", "1.4.0"));
}

}  // namespace
}  // namespace reelgrad
