#include "reelgrad/doctor/probes/probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "reelgrad/base/files.h"
#include "reelgrad/doctor/probes/system_children.h"
#include "reelgrad/doctor/testing/fake_root.h"

namespace reelgrad {
namespace {

using test::FakeRoot;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// A program that stands for reelgrad: it answers `probe NAME …` as the script says.
std::filesystem::path fake_reelgrad(const FakeRoot& root, const std::string& cases) {
  root.write("/bin/reelgrad", "#!/bin/sh\ncase \"$2\" in\n" + cases + "esac\n");
  std::filesystem::permissions(root.host("/bin/reelgrad"), std::filesystem::perms::owner_all);
  return root.host("/bin/reelgrad");
}

ProbeOptions options_of(const FakeRoot& root, const std::string& cases) {
  return {.root = root.path(), .program = fake_reelgrad(root, cases), .time_limit = std::chrono::seconds(20)};
}

TEST(Probes, AFakeMachineIsSeenWhole) {
  const FakeRoot root({{"/etc/os-release", "ID=debian\n"},
                       {"/proc/sys/kernel/osrelease", "6.1.0-30-amd64\n"},
                       {"/proc/modules", "nvidia 1 0 - Live 0x0\n"},
                       {"/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia.ko", ""},
                       {"/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"},
                       {"/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n"},
                       {"/sys/bus/pci/devices/0000:01:00.0/device", "0x2684\n"},
                       {"/dev/nvidia0", ""},
                       {"/usr/lib64/libcuda.so.1", ""},
                       {"/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"}});
  const Facts facts = probe_machine({.root = root.path(),
                                     .environment = {{"CUDA_VISIBLE_DEVICES", ""},
                                                     {"HOME", "/home/a"},
                                                     {"NVIDIA_API_KEY", "x"},
                                                     {"LD_LIBRARY_PATH", "/a"}},
                                     .run_dir = "/runs"});
  EXPECT_EQ(facts.system.os_id, "debian");
  EXPECT_EQ(facts.system.run_dir, "/runs");
  EXPECT_EQ(facts.system.run_file_system, "ext4");
  EXPECT_TRUE(facts.modules.nvidia_loaded && facts.modules.nvidia_on_disk);
  ASSERT_EQ(facts.pci_cards.size(), 1u);
  ASSERT_EQ(facts.device_nodes.size(), 1u);
  ASSERT_EQ(facts.libraries.size(), 1u);
  EXPECT_THAT(facts.environment, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", ""), Pair("LD_LIBRARY_PATH", "/a")));
  // Without a program nothing that may crash was tried.
  EXPECT_EQ(facts.driver.outcome, Outcome::not_run);
  EXPECT_EQ(facts.vulkan.outcome, Outcome::not_run);
  EXPECT_THAT(facts.devices, IsEmpty());
  EXPECT_EQ(facts.ffmpeg.path, "");
}

TEST(Probes, ChildrenAnswerInJson) {
  const FakeRoot root;
  const Facts facts = probe_machine(options_of(
      root,
      "driver) echo '{\"driver\": {\"cuda\": 13000, \"init_code\": 0}, \"devices\": [{\"name\": \"H200\"}]}';;\n"
      "vulkan) echo '{\"outcome\": \"failed\", \"error\": \"none\"}';;\n"));
  EXPECT_EQ(facts.driver.outcome, Outcome::ok);
  EXPECT_EQ(facts.driver.cuda, 13000);
  ASSERT_EQ(facts.devices.size(), 1u);
  EXPECT_EQ(facts.devices[0].name, "H200");
  EXPECT_EQ(facts.vulkan.outcome, Outcome::failed);
  EXPECT_EQ(facts.vulkan.error, "none");
}

TEST(Probes, AChildThatCrashesHangsOrTalksNonsenseIsAFact) {
  const FakeRoot root;
  Facts facts = probe_machine(options_of(root, "driver) kill -SEGV $$;;\nvulkan) echo '[1, 2';;\n"));
  EXPECT_EQ(facts.driver.outcome, Outcome::crashed);
  EXPECT_THAT(facts.driver.error, HasSubstr("11"));
  EXPECT_EQ(facts.vulkan.outcome, Outcome::failed);
  EXPECT_NE(facts.vulkan.error, "");
  ProbeOptions options = options_of(root, "driver) sleep 60;;\nvulkan) echo '{}';;\n");
  options.time_limit = std::chrono::milliseconds(500);
  const auto begin = std::chrono::steady_clock::now();
  facts = probe_machine(options);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(facts.driver.outcome, Outcome::timed_out);
  EXPECT_EQ(facts.vulkan.outcome, Outcome::not_run);
}

TEST(Probes, EachUsableCardIsTriedWhenAsked) {
  const FakeRoot root;
  ProbeOptions options =
      options_of(root,
                 "driver) echo '{\"driver\": {}, \"devices\": [{\"uuid\": \"GPU-1\"}, {\"uuid\": \"GPU-2\"}, "
                 "{\"uuid\": \"GPU-3\", \"compute_mode\": \"prohibited\"}]}';;\n"
                 "trial) [ \"$3\" = GPU-2 ] && kill -ABRT $$\n"
                 "echo '{\"trial\": {\"driver\": \"ok\", \"to_card_gbs\": 25}, \"under_load\": {}}';;\n");
  EXPECT_EQ(probe_machine(options).devices.at(0).trial.driver, Outcome::not_run);
  options.trial = true;
  const Facts facts = probe_machine(options);
  ASSERT_EQ(facts.devices.size(), 3u);
  EXPECT_EQ(facts.devices[0].trial.driver, Outcome::ok);
  EXPECT_EQ(facts.devices[0].trial.to_card_gbs, 25);
  EXPECT_EQ(facts.devices[1].trial.driver, Outcome::crashed);
  EXPECT_EQ(facts.devices[2].trial.driver, Outcome::not_run);
}

TEST(Probes, ThisProcesssOptions) {
  ::setenv("REELGRAD_PROBES_TEST", "here", 1);
  const ProbeOptions options = probe_options();
  ::unsetenv("REELGRAD_PROBES_TEST");
  EXPECT_EQ(options.root, "/");
  EXPECT_EQ(options.environment.at("REELGRAD_PROBES_TEST"), "here");
  EXPECT_TRUE(options.program.empty() || options.program.filename() == "reelgrad") << options.program;
}

TEST(Probes, SystemChildrenPrintWhatTheyWereAskedFor) {
  using nlohmann::json;
  EXPECT_TRUE(json::parse(run_system_probe({"nodes"})).at("device_nodes").is_array());
  const json folder = json::parse(run_system_probe({"folder", "/"}));
  EXPECT_NE(folder.at("run_file_system"), "");
  const auto free = static_cast<std::int64_t>(free_bytes("/") >> 20);
  EXPECT_NEAR(folder.at("run_free_mb").get<double>(), static_cast<double>(free), 1024.0);
  EXPECT_EQ(run_system_probe({"folder"}), "");
  EXPECT_EQ(run_system_probe({"driver"}), "");
  EXPECT_EQ(run_system_probe({}), "");
}

// Of this machine: at most 2 s without a card's trial, and 50 MB of this process's own.
TEST(Probes, AreQuickAndSmall) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  ProbeOptions options = probe_options();
  options.program.clear();
  const auto begin = std::chrono::steady_clock::now();
  const Facts facts = probe_machine(options);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 50 << 10);
  EXPECT_NE(facts.system.kernel, "");
  EXPECT_GT(facts.system.ram_mb, 0);
}

}  // namespace
}  // namespace reelgrad
