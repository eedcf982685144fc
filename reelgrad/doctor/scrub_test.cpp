#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/testing/healthy_facts.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string scrubbed_text(const std::string& text) {
  Facts facts;
  facts.driver.error = text;
  return scrubbed(facts).driver.error;
}

TEST(Scrub, HomesLoseTheirNames) {
  EXPECT_EQ(scrubbed_text("/home/alice/env/lib"), "/home/user/env/lib");
  EXPECT_EQ(scrubbed_text("a:/home/alice:/home/bob/x;/root/y"), "a:/home/user:/home/user/x;/home/user/y");
  EXPECT_EQ(scrubbed_text("no /home/alice and /tmp"), "no /home/user and /tmp");
  EXPECT_EQ(scrubbed_text("/mnt/c/Users/Alice Smith/clip.mkv"), "/mnt/c/Users/user/clip.mkv");
  EXPECT_EQ(scrubbed_text("C:\\Users\\Alice Smith\\clip.mkv"), "C:\\Users\\user\\clip.mkv");
  EXPECT_EQ(scrubbed_text("/var/home/alice"), "/var/home/user");
  EXPECT_EQ(scrubbed_text("/run/media/alice/disk"), "/run/media/user/disk");
  EXPECT_EQ(scrubbed_text("/chroot/x /rooted /srv/root/a /root"), "/chroot/x /rooted /srv/root/a /home/user");
  EXPECT_EQ(scrubbed_text("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"),
            "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06");
  EXPECT_EQ(scrubbed_text("mounted from alice@tower.lan: no"), "mounted from user@host: no");
}

TEST(Scrub, AUsersNameGoesFromOtherPathsToo) {
  Facts facts;
  facts.environment = {{"LD_LIBRARY_PATH", "/scratch/alice/lib:/data/alice2"}, {"VIRTUAL_ENV", "/home/alice/env"}};
  facts.device_nodes = {{.path = "/dev/nvidia0", .owner = "alice:video 0660"},
                        {.path = "/dev/nvidia1", .owner = "root:alice 0660"}};
  const Facts clean = scrubbed(facts);
  EXPECT_EQ(clean.environment.at("LD_LIBRARY_PATH"), "/scratch/user/lib:/data/alice2");
  EXPECT_EQ(clean.device_nodes[0].owner, "user:video 0660");
  EXPECT_EQ(clean.device_nodes[1].owner, "root:group 0660");
}

TEST(Scrub, CardsStayDistinct) {
  Facts facts;
  facts.devices = {{.uuid = "GPU-a1b2c3d4-4455-6677-8899-aabbccddeeff", .pci_address = "0000:65:00.0"},
                   {.uuid = "MIG-b1b2c3d4-4455-6677-8899-aabbccddeeff", .pci_address = "0000:B3:00.0"}};
  facts.pci_cards = {{.address = "0000:65:00.0"}, {.address = "0000:b3:00.1"}};
  facts.environment["CUDA_VISIBLE_DEVICES"] = "MIG-b1b2c3d4,GPU-a1b2,3";
  facts.driver.error = "NVRM: Xid (PCI:0000:65:00): 79; 00000000:B3:00.0 is gone at 12:30:45";
  const Facts clean = scrubbed(facts);
  EXPECT_EQ(clean.devices[0].uuid, "GPU-00000000-0000-0000-0000-000000000000");
  EXPECT_EQ(clean.devices[1].uuid, "MIG-00000001-0000-0000-0000-000000000000");
  EXPECT_EQ(clean.environment.at("CUDA_VISIBLE_DEVICES"), "MIG-00000001,GPU-00000000,3");
  EXPECT_EQ(clean.devices[0].pci_address, "0000:01:00.0");
  EXPECT_EQ(clean.devices[1].pci_address, "0000:02:00.0");
  EXPECT_EQ(clean.pci_cards[1].address, "0000:02:00.1");
  EXPECT_EQ(clean.driver.error, "NVRM: Xid (PCI:0000:01:00): 79; 0000:02:00.0 is gone at 12:30:45");
}

TEST(Scrub, KernelsKeepWhatDistributionsSay) {
  const auto kernel = [](const char* release) {
    Facts facts;
    facts.system.kernel = release;
    return scrubbed(facts).system.kernel;
  };
  for (const char* release :
       {"6.1.0-30-amd64", "6.8.0-45-generic", "5.15.90.1-microsoft-standard-WSL2", "4.4.0-19041-Microsoft",
        "6.10.3-200.fc40.x86_64", "4.18.0-553.16.1.el8_10.x86_64", "6.9.7-arch1-1", "6.8.12-4-pve",
        "6.1.0-0.deb11.21-amd64", "5.15.0-1040-azure", "6.6.87.2-microsoft-standard-WSL2+", ""})
    EXPECT_EQ(kernel(release), release);
  EXPECT_EQ(kernel("6.1.0-30-amd64-myhost-custom"), "6.1.0-30-amd64");
  EXPECT_EQ(kernel("6.9.1-tower"), "6.9.1");
  EXPECT_EQ(kernel("6.9.1-g1a2b3c4d5e6f"), "6.9.1");
}

TEST(Scrub, RunFoldersAndProcessesAreOnlyOfAKind) {
  Facts facts;
  facts.devices = {{.processes = {{4711, "secret-game", 300}, {4712, "", -1}}}};
  const auto run_dir = [&](const char* path) {
    facts.system.run_dir = path;
    return scrubbed(facts).system.run_dir;
  };
  EXPECT_EQ(run_dir("/home/alice/film/runs"), "/home/user/run");
  EXPECT_EQ(run_dir("/mnt/c/Users/Alice/film"), "/mnt/c/Users/user/run");
  EXPECT_EQ(run_dir("/mnt/c/film/runs"), "/mnt/c/run");
  EXPECT_EQ(run_dir("/data/film"), "/data/run");
  EXPECT_EQ(run_dir("/"), "/");
  EXPECT_EQ(run_dir(""), "");
  const auto processes = scrubbed(facts).devices[0].processes;
  EXPECT_EQ(processes[0].pid, 1);
  EXPECT_EQ(processes[0].name, "program");
  EXPECT_EQ(processes[0].used_mb, 300);
  EXPECT_EQ(processes[1].name, "");
}

TEST(Scrub, WhatIsCleanStaysAsItIs) {
  const std::string once = facts_to_json(scrubbed(healthy_facts()));
  EXPECT_EQ(facts_to_json(scrubbed(facts_from_json(once))), once);
  EXPECT_EQ(facts_to_json(scrubbed(Facts{})), facts_to_json(Facts{}));
  EXPECT_THAT(once, Not(HasSubstr("00112233")));
  EXPECT_THAT(once, HasSubstr("580.65.06"));
}

TEST(Scrub, ANameGoesWhateverIsAroundIt) {
  std::mt19937 random(1);
  const std::string pieces[] = {"/home/alice",  "/home/", "/root",     "GPU-", "MIG-a1b2",
                                "0000:01:00.0", "@",      "\\Users\\", " ",    "a",
                                "\xff",         "f",      ":",         "/"};
  for (int round = 0; round < 2'000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += pieces[random() % std::size(pieces)];
    EXPECT_THAT(scrubbed_text(text), AllOf(Not(HasSubstr("alice")), Not(HasSubstr("a1b2")))) << text;
  }
  EXPECT_EQ(scrubbed_text(std::string(1 << 16, 'a')), std::string(1 << 16, 'a'));
}

}  // namespace
}  // namespace reelgrad
