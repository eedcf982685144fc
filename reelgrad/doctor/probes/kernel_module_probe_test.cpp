#include "reelgrad/doctor/probes/kernel_module_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "reelgrad/doctor/testing/fake_root.h"

namespace reelgrad {
namespace {

using test::FakeRoot;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kRunningKernel = "6.1.0-30-amd64";

KernelModuleFacts modules_of(const FakeRoot& root) {
  return probe_kernel_modules(root.files(), kRunningKernel);
}

TEST(KernelModules, LoadedOnesAreListedByTheKernel) {
  const FakeRoot root({{"/proc/modules",
                        "nvidia_uvm 1540096 0 - Live 0x0000000000000000 (POE)\n"
                        "nvidia 60710912 2 nvidia_uvm, Live 0x0000000000000000 (POE)\n"}});
  EXPECT_TRUE(modules_of(root).nvidia_loaded);
  EXPECT_TRUE(modules_of(root).nvidia_uvm_loaded);
  EXPECT_FALSE(modules_of(root).nouveau_loaded);
  // Those of a similar name are not it; built-in ones have a folder only.
  const FakeRoot other({{"/proc/modules", "nvidiafb 1 0 - Live 0x0\ni2c_nvidia_gpu 1 0 - Live 0x0\n"},
                        {"/sys/module/nouveau/refcnt", "0\n"}});
  EXPECT_FALSE(modules_of(other).nvidia_loaded);
  EXPECT_TRUE(modules_of(other).nouveau_loaded);
}

TEST(KernelModules, TheLoadedVersionIsReadFromEitherFile) {
  const FakeRoot open(
      {{"/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (a@b)\nGCC 12.2.0\n"},
       {"/sys/module/nvidia/version", "570.1\n"}});
  EXPECT_EQ(modules_of(open).nvidia_version, "580.65.06");
  const FakeRoot closed(
      {{"/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\n"}});
  EXPECT_EQ(modules_of(closed).nvidia_version, "470.256.02");
  EXPECT_EQ(modules_of(FakeRoot({{"/sys/module/nvidia/version", "570.1\n"}})).nvidia_version, "570.1");
  EXPECT_EQ(modules_of(FakeRoot()).nvidia_version, "");
}

TEST(KernelModules, AModuleOnDiskIsThatOfTheRunningKernel) {
  for (const char* file :
       {"/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia.ko", "/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia.ko.xz",
        "/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia-current.ko",
        "/usr/lib/modules/6.1.0-30-amd64/extramodules/nvidia.ko.zst",
        "/lib/modules/6.1.0-30-amd64/kernel/nvidia-580-open/nvidia.ko.zst",
        "/lib/modules/6.1.0-30-amd64/extra/nvidia/nvidia.ko.xz"}) {
    EXPECT_TRUE(modules_of(FakeRoot({{file, ""}})).nvidia_on_disk) << file;
  }
  for (const char* file :
       {"/lib/modules/6.1.0-29-amd64/updates/dkms/nvidia.ko", "/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia-uvm.ko",
        "/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia-current-drm.ko",
        "/lib/modules/6.1.0-30-amd64/kernel/drivers/video/fbdev/nvidia/nvidiafb.ko"}) {
    EXPECT_FALSE(modules_of(FakeRoot({{file, ""}})).nvidia_on_disk) << file;
  }
  const FakeRoot listed(
      {{"/lib/modules/6.1.0-30-amd64/modules.dep",
        "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko:\nsomewhere/new/nvidia.ko.zst: kernel/a.ko\n"}});
  EXPECT_TRUE(modules_of(listed).nvidia_on_disk);
}

TEST(KernelModules, ErrorNumbersAreThoseSinceTheLastStart) {
  const std::string log =
      "Jan 1 00:00:00 box kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=python\n"
      "Jan 2 00:00:00 box kernel: Linux version 6.1.0-30-amd64 (a@b)\n"
      "6,1,2,-;NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception\n"
      "NVRM: GPU at PCI:0000:01:00: GPU-1\n"
      "[  12.3] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n";
  EXPECT_THAT(xids_in(log), ElementsAre(13, 79));
  EXPECT_THAT(xids_in("NVRM: Xid (PCI:0000:01:00): \nNVRM: Xid ("), IsEmpty());
  std::string many;
  for (int number = 1; number <= 100; ++number) many += "NVRM: Xid (PCI:1): " + std::to_string(number) + ", a\n";
  EXPECT_EQ(xids_in(many).size(), 32u);
  EXPECT_EQ(xids_in(many).back(), 100);
  EXPECT_THAT(modules_of(FakeRoot({{"/var/log/kern.log", log.c_str()}})).xids, ElementsAre(13, 79));
}

TEST(KernelModules, ALogThatIsAFifoIsNotWaitedFor) {
  const FakeRoot root({{"/dev/null", ""}, {"/var/log/messages", "NVRM: Xid (PCI:0000:01:00): 48, a\n"}});
  ASSERT_EQ(::mkfifo(root.host("/dev/kmsg").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(root.host("/var/log/kern.log").c_str(), 0600), 0);
  EXPECT_THAT(modules_of(root).xids, ElementsAre(48));
}

}  // namespace
}  // namespace reelgrad
