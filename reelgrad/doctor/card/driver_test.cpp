#include "reelgrad/doctor/card/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "reelgrad/doctor/card/driver_library.h"
#include "reelgrad/doctor/testing/fake_driver.h"

namespace reelgrad {
namespace {

using test::fake_facts;
using test::FakeDriver;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Driver, TellsAllOfItsCards) {
  const Facts facts = fake_facts({{"CARDS", "2"}});
  EXPECT_EQ(facts.driver.outcome, Outcome::ok);
  EXPECT_EQ(facts.driver.error, "");
  EXPECT_EQ(facts.driver.version, "580.65.06");
  EXPECT_EQ(facts.driver.cuda, 13000);
  EXPECT_EQ(facts.driver.init_code, 0);
  EXPECT_EQ(facts.driver.nvml_code, 0);
  EXPECT_EQ(facts.driver.nvml_cards, 2);
  EXPECT_EQ(facts.driver.mig_without_instance, 0);
  EXPECT_EQ(facts.driver.compute_prohibited, 0);
  EXPECT_EQ(facts.driver.library, std::filesystem::canonical(REELGRAD_TEST_FAKE_DRIVER "/libcuda.so.1"));
  ASSERT_THAT(facts.devices, SizeIs(2));
  const DeviceFacts& second = facts.devices[1];
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.name, "NVIDIA GeForce RTX 3060");
  EXPECT_EQ(second.uuid, "GPU-01234567-89ab-cdef-0000-000000000001");
  EXPECT_EQ(second.pci_address, "0000:02:00.0");
  EXPECT_EQ(second.compute_major, 8);
  EXPECT_EQ(second.compute_minor, 6);
  EXPECT_EQ(second.multiprocessors, 28);
  EXPECT_EQ(second.memory_total_mb, 12288);
}

TEST(Driver, TellsHowACardIsDoing) {
  const Facts facts = fake_facts({{"THROTTLE", "68"}, {"ECC", "3"}});  // 0x44
  ASSERT_THAT(facts.devices, SizeIs(1));
  const DeviceFacts& card = facts.devices[0];
  EXPECT_EQ(card.memory_used_mb, 700);
  EXPECT_EQ(card.memory_free_mb, 12288 - 700);
  EXPECT_THAT(card.processes, IsEmpty());
  EXPECT_EQ(card.compute_mode, "default");
  EXPECT_EQ(card.mig, false);
  EXPECT_EQ(card.mig_instances, -1);
  EXPECT_EQ(card.persistence, false);
  EXPECT_DOUBLE_EQ(card.power_w, 31.5);
  EXPECT_DOUBLE_EQ(card.power_limit_w, 100);
  EXPECT_DOUBLE_EQ(card.power_limit_default_w, 170);
  EXPECT_EQ(card.clock_mhz, 210);
  EXPECT_EQ(card.clock_max_mhz, 2100);
  EXPECT_EQ(card.temperature_c, 41);
  EXPECT_EQ(card.temperature_slowdown_c, 98);
  EXPECT_THAT(card.throttle_reasons, ElementsAre("sw_power_cap", "hw_thermal_slowdown"));
  EXPECT_EQ(card.ecc_uncorrected, 3);
  EXPECT_EQ(card.pcie_generation, 1);
  EXPECT_EQ(card.pcie_generation_max, 4);
  EXPECT_EQ(card.pcie_width, 4);
  EXPECT_EQ(card.pcie_width_max, 16);
}

TEST(Driver, NamesEachProcessOnceWithWhatItHolds) {
  // The list's first version, without instances, for those that compute; the second for those that draw.
  const Facts facts = fake_facts({{"COMPUTING", "1:512,4000001"}, {"DRAWING", "4000002:80,1:512"}});
  ASSERT_THAT(facts.devices, SizeIs(1));
  const std::vector<ProcessFacts>& processes = facts.devices[0].processes;
  ASSERT_THAT(processes, SizeIs(3));
  EXPECT_EQ(processes[0].pid, 1);
  EXPECT_EQ(processes[0].used_mb, 512);
  EXPECT_NE(processes[0].name, "");
  EXPECT_EQ(processes[1].pid, 4000001);
  EXPECT_EQ(processes[1].used_mb, -1);
  EXPECT_EQ(processes[1].name, "");  // no such process
  EXPECT_EQ(processes[2].pid, 4000002);
  EXPECT_EQ(processes[2].used_mb, 80);
}

TEST(Driver, TellsManyProcesses) {
  std::string list = "4000000:1";
  for (int i = 1; i < 100; ++i) list += ",40000" + std::to_string(100 + i) + ":1";
  const Facts facts = fake_facts({{"COMPUTING", list}});
  ASSERT_THAT(facts.devices, SizeIs(1));
  EXPECT_THAT(facts.devices[0].processes, SizeIs(100));
}

// Field case B8: 17 GB in use, and nobody who would hold them.
TEST(Driver, TellsMemoryThatNoVisibleProcessHolds) {
  const Facts facts = fake_facts({{"USED_MB", "11000"}});
  ASSERT_THAT(facts.devices, SizeIs(1));
  EXPECT_EQ(facts.devices[0].memory_used_mb, 11000);
  EXPECT_THAT(facts.devices[0].processes, IsEmpty());
}

struct InitCase {
  const char* code;
  const char* error;
};

TEST(Driver, TellsWhyCudaDoesNotStart) {
  for (const InitCase& one : {InitCase{"100", "cuInit says 100 (CUDA_ERROR_NO_DEVICE)"},
                              InitCase{"999", "cuInit says 999 (CUDA_ERROR_UNKNOWN)"},
                              InitCase{"802", "cuInit says 802 (CUDA_ERROR_SYSTEM_NOT_READY)"},
                              InitCase{"803", "cuInit says 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"},
                              InitCase{"804", "cuInit says 804 (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)"},
                              InitCase{"12345", "cuInit says 12345 (unknown error)"}}) {
    const Facts facts = fake_facts({{"CUDA_INIT", one.code}});
    EXPECT_EQ(facts.driver.outcome, Outcome::failed);
    EXPECT_EQ(std::to_string(facts.driver.init_code), one.code);
    EXPECT_EQ(facts.driver.error, one.error);
    EXPECT_THAT(facts.devices, IsEmpty());
    EXPECT_EQ(facts.driver.nvml_cards, 1);  // NVML counts it all the same
  }
}

TEST(Driver, TellsAnOldDriversLevel) {
  const Facts facts = fake_facts({{"CUDA_VERSION", "11040"}, {"DRIVER", "470.256.02"}});
  EXPECT_EQ(facts.driver.cuda, 11040);
  EXPECT_EQ(facts.driver.version, "470.256.02");
}

TEST(Driver, TellsWhyNvmlDoesNotStart) {
  Facts facts = fake_facts({{"NVML_INIT", "18"}});
  EXPECT_EQ(facts.driver.nvml_code, 18);
  EXPECT_EQ(facts.driver.nvml_error, "nvmlInit_v2 says 18 (Driver/library version mismatch)");
  EXPECT_EQ(facts.driver.nvml_cards, -1);
  ASSERT_THAT(facts.devices, SizeIs(1));
  EXPECT_EQ(facts.devices[0].memory_free_mb, -1);
  EXPECT_EQ(facts.devices[0].mig, std::nullopt);
  facts = fake_facts({{"NVML_INIT", "9"}});
  EXPECT_EQ(facts.driver.nvml_code, 9);
  EXPECT_EQ(facts.driver.nvml_error, "nvmlInit_v2 says 9 (Driver Not Loaded)");
}

// Field case A7: a container whose card was taken away while it ran. NVML may say so at once or only of the card.
TEST(Driver, TellsThatACardIsOutOfReach) {
  Facts facts = fake_facts({{"NVML_INIT", "999"}, {"CUDA_INIT", "999"}});
  EXPECT_EQ(facts.driver.nvml_code, 999);
  EXPECT_EQ(facts.driver.nvml_error, "nvmlInit_v2 says 999 (Unknown Error)");
  for (const char* calls : {"0", "1", "20"}) {
    facts = fake_facts({{"NVML_CALLS", calls}});
    EXPECT_EQ(facts.driver.nvml_code, 999) << calls;
    EXPECT_THAT(facts.driver.nvml_error, HasSubstr("says 999 (Unknown Error)")) << calls;
  }
  facts = fake_facts({{"NVML_CALLS", "0"}, {"NVML_LOST", "15"}});
  EXPECT_EQ(facts.driver.nvml_code, 15);
  EXPECT_EQ(facts.driver.nvml_error, "nvmlDeviceGetHandleByIndex_v2 says 15 (GPU is lost)");
}

TEST(Driver, CountsCardsThatCudaDoesNotShow) {
  Facts facts = fake_facts({{"CARDS", "0"}, {"NVML_CARDS", "2"}, {"CUDA_INIT", "100"}, {"MIG", "0"}});
  EXPECT_EQ(facts.driver.nvml_cards, 2);
  EXPECT_EQ(facts.driver.mig_without_instance, 2);
  facts = fake_facts({{"CUDA_INIT", "100"}, {"COMPUTE_MODE", "2"}});
  EXPECT_EQ(facts.driver.compute_prohibited, 1);
  facts = fake_facts({{"COMPUTE_MODE", "3"}});
  EXPECT_EQ(facts.driver.compute_prohibited, 0);
  ASSERT_THAT(facts.devices, SizeIs(1));
  EXPECT_EQ(facts.devices[0].compute_mode, "exclusive_process");
}

TEST(Driver, KnowsASliceOfACard) {
  const Facts facts =
      fake_facts({{"SLICES", "1"}, {"MIG", "3"}, {"NAME", "NVIDIA A100-SXM4-40GB"}, {"USED_MB", "100"}});
  ASSERT_THAT(facts.devices, SizeIs(1));
  EXPECT_EQ(facts.devices[0].uuid, "MIG-01234567-89ab-cdef-0000-000000000000");
  EXPECT_EQ(facts.devices[0].mig, true);
  EXPECT_EQ(facts.devices[0].mig_instances, 3);
  EXPECT_EQ(facts.devices[0].memory_used_mb, 100);
  EXPECT_DOUBLE_EQ(facts.devices[0].power_w, 31.5);  // its card's
  EXPECT_EQ(facts.driver.mig_without_instance, 0);
}

TEST(Driver, TakesLibrariesThatHaveFewFunctions) {
  const Facts facts = fake_facts({}, FakeDriver::bare);
  EXPECT_EQ(facts.driver.outcome, Outcome::failed);
  EXPECT_EQ(facts.driver.error, "libcuda.so.1 has no cuDeviceGetCount");
  EXPECT_EQ(facts.driver.cuda, 13000);
  EXPECT_EQ(facts.driver.version, "");
  EXPECT_EQ(facts.driver.nvml_code, 0);
  EXPECT_EQ(facts.driver.nvml_cards, -1);
  EXPECT_EQ(fake_facts({{"NVML_INIT", "999"}}, FakeDriver::bare).driver.nvml_error,
            "nvmlInit_v2 says 999 (unknown error)");
}

TEST(DriverVersion, StandsInTheLibrarysName) {
  EXPECT_EQ(driver_version_in("/usr/lib/libcuda.so.580.65.06"), "580.65.06");
  EXPECT_EQ(driver_version_in("/usr/lib/wsl/lib/libcuda.so.1"), "");
  EXPECT_EQ(driver_version_in(""), "");
}

TEST(DriverGpu, TellsAllThatItIsAskedFor) {
  Facts facts;
  probe_driver(facts);
  if (facts.devices.empty()) GTEST_SKIP() << "needs a CUDA card: " << facts.driver.error;
  EXPECT_EQ(facts.driver.outcome, Outcome::ok);
  EXPECT_EQ(facts.driver.init_code, 0);
  EXPECT_EQ(facts.driver.nvml_code, 0) << facts.driver.nvml_error;
  EXPECT_GE(facts.driver.nvml_cards, 1);
  EXPECT_GE(facts.driver.cuda, 11000);
  EXPECT_THAT(facts.driver.version, HasSubstr("."));
  EXPECT_TRUE(std::filesystem::exists(facts.driver.library));
  for (const DeviceFacts& card : facts.devices) {
    EXPECT_THAT(card.uuid, HasSubstr("-"));
    EXPECT_THAT(card.pci_address, testing::MatchesRegex("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+\\.0"));
    EXPECT_GT(card.multiprocessors, 0);
    EXPECT_GE(card.compute_major, 5);
    EXPECT_GT(card.memory_total_mb, 1000);
    EXPECT_GT(card.memory_free_mb, 0);
    EXPECT_GE(card.memory_used_mb, 0);
    EXPECT_LE(card.memory_used_mb + card.memory_free_mb, card.memory_total_mb * 21 / 20);
    EXPECT_NE(card.compute_mode, "");
    EXPECT_GT(card.power_w, 0);
    EXPECT_GT(card.power_limit_default_w, 0);
    EXPECT_GT(card.clock_max_mhz, 0);
    EXPECT_GT(card.temperature_c, 0);
    EXPECT_GE(card.pcie_generation_max, 1);
    EXPECT_GE(card.pcie_width_max, 1);
  }
}

}  // namespace
}  // namespace reelgrad
