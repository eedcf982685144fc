#include "reelgrad/doctor/probes/vulkan_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace reelgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(VulkanProbe, AsksTheLoaderForItsCards) {
  const VulkanFacts facts = probe_vulkan(REELGRAD_FAKE_VULKAN);
  EXPECT_EQ(facts.outcome, Outcome::ok);
  EXPECT_EQ(facts.loader, "1.3.280");
  EXPECT_THAT(facts.devices, ElementsAre("NVIDIA H200, 1.4", "llvmpipe (LLVM 15.0.6, 256 bits), 1.2"));
  EXPECT_EQ(facts.error, "");
}

TEST(VulkanProbe, ALoaderWithoutADriverSaysSo) {
  ::setenv("FAKE_VULKAN_RESULT", "-9", 1);
  const VulkanFacts facts = probe_vulkan(REELGRAD_FAKE_VULKAN);
  ::unsetenv("FAKE_VULKAN_RESULT");
  EXPECT_EQ(facts.outcome, Outcome::failed);
  EXPECT_EQ(facts.loader, "1.3.280");
  EXPECT_THAT(facts.error, HasSubstr("vkCreateInstance says -9 (VK_ERROR_INCOMPATIBLE_DRIVER"));
}

TEST(VulkanProbe, NoLoaderIsAReason) {
  const VulkanFacts facts = probe_vulkan("libno-such-vulkan.so.1");
  EXPECT_EQ(facts.outcome, Outcome::failed);
  EXPECT_EQ(facts.loader, "");
  EXPECT_THAT(facts.devices, IsEmpty());
  EXPECT_THAT(facts.error, HasSubstr("libno-such-vulkan.so.1"));
}

}  // namespace
}  // namespace reelgrad
