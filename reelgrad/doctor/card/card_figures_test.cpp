#include "reelgrad/doctor/card/card_figures.h"

#include <gtest/gtest.h>

namespace reelgrad {
namespace {

// As `nvidia-smi -L` names the cards, with older drivers' names among them.
TEST(CardFigures, KnowsCardsByTheDriversNames) {
  for (const char* name :
       {"NVIDIA GeForce RTX 3060", "GeForce RTX 2080 Ti", "NVIDIA GeForce GTX 1660 SUPER", "NVIDIA TITAN RTX",
        "Tesla T4", "NVIDIA T4", "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 80GB HBM3",
        "NVIDIA H200", "NVIDIA L40S", "NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation", "NVIDIA GeForce RTX 5090"})
    EXPECT_TRUE(expected_figures(name)) << name;
}

TEST(CardFigures, TakesNoOtherCardForOneOfTheTable) {
  for (const char* name : {"", "NVIDIA", "NVIDIA GeForce RTX 3060 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
                           "NVIDIA GeForce RTX 9090", "AMD Radeon RX 7900 XTX"})
    EXPECT_FALSE(expected_figures(name)) << name;
}

// Memory: data rate in Gbit/s a pin times the bus's width over 8. Products: the tensor cores' multiply-adds a clock and
// multiprocessor, times multiprocessors and boost clock.
TEST(CardFigures, AgreeWithClocksAndWidths) {
  const auto ampere = expected_figures("NVIDIA GeForce RTX 3090");
  ASSERT_TRUE(ampere);
  EXPECT_NEAR(ampere->memory_gbs, 19.5 * 384 / 8, 1);
  EXPECT_NEAR(ampere->half_tflops, 2 * 256 * 82 * 1.695e9 / 1e12, 0.5);
  const auto ada = expected_figures("NVIDIA GeForce RTX 4090");
  ASSERT_TRUE(ada);
  EXPECT_NEAR(ada->memory_gbs, 21.0 * 384 / 8, 1);
  EXPECT_NEAR(ada->half_tflops, 2 * 256 * 128 * 2.52e9 / 1e12, 0.5);
  const auto a100 = expected_figures("NVIDIA A100-SXM4-40GB");
  ASSERT_TRUE(a100);
  EXPECT_NEAR(a100->half_tflops, 2 * 1024 * 108 * 1.41e9 / 1e12, 0.5);
  const auto turing = expected_figures("GeForce RTX 2080 Ti");
  ASSERT_TRUE(turing);
  EXPECT_NEAR(turing->memory_gbs, 14.0 * 352 / 8, 1);
  EXPECT_NEAR(turing->half_tflops, 2 * 256 * 68 * 1.545e9 / 1e12, 0.5);
}

TEST(PcieGbs, FollowsGenerationAndWidth) {
  EXPECT_NEAR(pcie_gbs(3, 16), 0.75 * 15.75, 0.02);
  EXPECT_NEAR(pcie_gbs(4, 16), 0.75 * 31.5, 0.02);
  EXPECT_NEAR(pcie_gbs(5, 16), 0.75 * 63.0, 0.02);
  EXPECT_NEAR(pcie_gbs(4, 4) * 4, pcie_gbs(4, 16), 1e-9);
  EXPECT_EQ(pcie_gbs(0, 16), 0);
  EXPECT_EQ(pcie_gbs(9, 16), 0);
  EXPECT_EQ(pcie_gbs(4, 0), 0);
}

}  // namespace
}  // namespace reelgrad
