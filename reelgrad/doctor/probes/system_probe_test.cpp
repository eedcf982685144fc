#include "reelgrad/doctor/probes/system_probe.h"

#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "reelgrad/doctor/probes/mounts.h"
#include "reelgrad/doctor/testing/fake_root.h"

namespace reelgrad {
namespace {

using test::FakeRoot;
using ::testing::ElementsAre;

SystemFacts system_of(const FakeRoot& root, const Environment& environment = {}) {
  return probe_system(root.files(), environment);
}

TEST(SystemProbe, AnEmptyRootIsNotKnown) {
  const FakeRoot root;
  const SystemFacts facts = system_of(root);
  EXPECT_EQ(facts.os + facts.os_id + facts.os_like + facts.os_version + facts.kernel + facts.glibc, "");
  EXPECT_EQ(facts.libstdcxx + facts.container, "");
  EXPECT_EQ(facts.wsl, 0);
  EXPECT_FALSE(facts.has_dxg || facts.secure_boot || facts.container_has_nvidia_runtime);
  for (const auto figure : {facts.ram_mb, facts.ram_free_mb, facts.swap_mb, facts.memory_limit_mb, facts.memlock_kb,
                            facts.open_files, facts.open_files_used, facts.shm_mb})
    EXPECT_EQ(figure, -1);
}

TEST(SystemProbe, ReadsTheDistributionAndTheKernel) {
  const FakeRoot root(
      {{"/etc/os-release",
        "PRETTY_NAME=\"Linux Mint 22\"\nID=linuxmint\nID_LIKE='ubuntu debian'\n# note\nVERSION_ID=\"22\"\n"},
       {"/proc/sys/kernel/osrelease", "6.8.0-45-generic\n"}});
  const SystemFacts facts = system_of(root);
  EXPECT_EQ(facts.os, "Linux Mint 22");
  EXPECT_EQ(facts.os_id, "linuxmint");
  EXPECT_EQ(facts.os_like, "ubuntu debian");
  EXPECT_EQ(facts.os_version, "22");
  EXPECT_EQ(facts.kernel, "6.8.0-45-generic");
  const FakeRoot other({{"/usr/lib/os-release", "ID=arch\nPRETTY_NAME=\"Arch Linux\"\n"}});
  EXPECT_EQ(system_of(other).os_id, "arch");
}

TEST(SystemProbe, ReadsTheVersionsOfTheLibraries) {
  const FakeRoot root(
      {{"/usr/lib64/libc.so.6", "\x7f junk GNU C Library (GNU libc) stable release version 2.39.\n more"},
       {"/usr/lib64/libstdc++.so.6.0.33", "GLIBCXX_3.4 GLIBCXX_3.4.9 GLIBCXX_3.4.33 GLIBCXX_3.4.5"}});
  root.link("/usr/lib64/libstdc++.so.6", "libstdc++.so.6.0.33");
  root.link("/lib64", "usr/lib64");
  EXPECT_EQ(system_of(root).glibc, "2.39");
  EXPECT_EQ(system_of(root).libstdcxx, "3.4.33");
  // An environment's own comes first.
  root.write("/opt/env/lib/libstdc++.so.6", "GLIBCXX_3.4.19");
  EXPECT_EQ(system_of(root, {{"LD_LIBRARY_PATH", "/opt/env/lib"}}).libstdcxx, "3.4.19");
}

TEST(SystemProbe, ReadsMemoryAndSecureBoot) {
  const FakeRoot root({{"/proc/meminfo",
                        "MemTotal:       65536000 kB\nMemFree:        1 kB\nMemAvailable:   32768000 kB\n"
                        "SwapTotal:       2048000 kB\nSwapFree: 7 kB\n"}});
  const std::string variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
  root.write(variable, std::string("\x16\0\0\0\1", 5));
  EXPECT_EQ(system_of(root).ram_mb, 64000);
  EXPECT_EQ(system_of(root).ram_free_mb, 32000);
  EXPECT_EQ(system_of(root).swap_mb, 2000);
  EXPECT_TRUE(system_of(root).secure_boot);
  root.write(variable, std::string("\x16\0\0\0\0", 5));
  EXPECT_FALSE(system_of(root).secure_boot);
}

TEST(SystemProbe, TellsTheVersionOfWsl) {
  struct Case {
    const char* kernel;
    int wsl;
  };
  for (const auto& [kernel, wsl] : {Case{"4.4.0-19041-Microsoft", 1}, Case{"5.15.90.1-microsoft-standard-WSL2", 2},
                                    Case{"6.6.1-mine-WSL2", 2}, Case{"5.15.0-1040-azure", 0}}) {
    const FakeRoot root({{"/proc/sys/kernel/osrelease", kernel}});
    EXPECT_EQ(system_of(root).wsl, wsl) << kernel;
  }
  const FakeRoot root({{"/proc/sys/kernel/osrelease", "6.9.1-mine"}, {"/dev/dxg", ""}});
  EXPECT_EQ(system_of(root, {{"WSL_DISTRO_NAME", "Ubuntu"}}).wsl, 2);
  EXPECT_TRUE(system_of(root).has_dxg);
  const FakeRoot with_systemd({{"/run/systemd/container", "wsl\n"}});
  EXPECT_EQ(system_of(with_systemd).container, "");
}

TEST(SystemProbe, NamesTheContainer) {
  EXPECT_EQ(system_of(FakeRoot({{"/.dockerenv", ""}})).container, "docker");
  EXPECT_EQ(system_of(FakeRoot({{"/.dockerenv", ""}}), {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}).container,
            "kubernetes");
  EXPECT_EQ(system_of(FakeRoot({{"/run/.containerenv", "engine=\"podman-4.3.1\"\n"}})).container, "podman");
  EXPECT_EQ(system_of(FakeRoot(), {{"APPTAINER_CONTAINER", "/a.sif"}}).container, "apptainer");
  EXPECT_EQ(system_of(FakeRoot(), {{"container", "lxc"}}).container, "lxc");
  EXPECT_EQ(system_of(FakeRoot({{"/run/systemd/container", "systemd-nspawn\n"}})).container, "systemd-nspawn");
  EXPECT_EQ(system_of(FakeRoot({{"/proc/1/cgroup", "12:memory:/docker/0a1b\n"}})).container, "docker");
  EXPECT_EQ(system_of(FakeRoot({{"/proc/1/cgroup", "0::/kubepods.slice/a/docker-1.scope\n"}})).container, "kubernetes");
  EXPECT_EQ(system_of(FakeRoot({{"/proc/1/cgroup", "0::/init.scope\n"}})).container, "");
}

TEST(SystemProbe, KnowsTheRuntimeByItsTraces) {
  const char* mounted =
      "700 650 8:1 /usr/lib/libcuda.so.580.65.06 /usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06 ro - ext4 /dev/sda1 "
      "rw\n";
  EXPECT_TRUE(
      system_of(FakeRoot({{"/.dockerenv", ""}, {"/proc/self/mountinfo", mounted}})).container_has_nvidia_runtime);
  EXPECT_FALSE(system_of(FakeRoot({{"/proc/self/mountinfo", mounted}})).container_has_nvidia_runtime);
  const FakeRoot plain({{"/.dockerenv", ""}});
  EXPECT_FALSE(system_of(plain, {{"NVIDIA_VISIBLE_DEVICES", "all"}}).container_has_nvidia_runtime);
  plain.write("/dev/nvidiactl", "");
  EXPECT_TRUE(system_of(plain, {{"NVIDIA_VISIBLE_DEVICES", "all"}}).container_has_nvidia_runtime);
  EXPECT_FALSE(system_of(plain, {{"NVIDIA_VISIBLE_DEVICES", "void"}}).container_has_nvidia_runtime);
}

TEST(SystemProbe, TheLeastMemoryLimitOfTheGroupsHolds) {
  const FakeRoot second({{"/proc/self/cgroup", "0::/user.slice/app.scope\n"},
                         {"/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n"},
                         {"/sys/fs/cgroup/user.slice/memory.max", "8589934592\n"},
                         {"/sys/fs/cgroup/memory.max", "17179869184\n"}});
  EXPECT_EQ(system_of(second).memory_limit_mb, 8192);
  const FakeRoot unlimited({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/memory.max", "max\n"}});
  EXPECT_EQ(system_of(unlimited).memory_limit_mb, -1);
  const FakeRoot first({{"/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory,hugetlb:/docker/1\n0::/\n"},
                        {"/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "4294967296\n"},
                        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_EQ(system_of(first).memory_limit_mb, 4096);
  // A private name space: the path of the host is not there, the container's own group is the top.
  const FakeRoot hidden(
      {{"/proc/self/cgroup", "4:memory:/docker/1\n"}, {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"}});
  EXPECT_EQ(system_of(hidden).memory_limit_mb, 2048);
}

TEST(SystemProbe, ReadsTheLimitsOfTheProcess) {
  const FakeRoot root(
      {{"/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 1048576              files     \n"
        "Max locked memory         67108864             unlimited            bytes     \n"},
       {"/proc/self/fd/0", ""},
       {"/proc/self/fd/1", ""},
       {"/proc/self/fd/2", ""},
       {"/proc/self/mountinfo", "25 24 0:23 / /dev/shm rw,relatime shared:3 - tmpfs shm rw,size=65536k\n"}});
  const SystemFacts facts = system_of(root);
  EXPECT_EQ(facts.open_files, 1024);
  EXPECT_EQ(facts.memlock_kb, 65536);
  EXPECT_EQ(facts.open_files_used, 3);
  EXPECT_EQ(facts.shm_mb, 64);
  root.write("/proc/self/limits", "Max locked memory         unlimited            unlimited            bytes     \n");
  EXPECT_EQ(system_of(root).memlock_kb, -1);
}

TEST(SystemProbe, AgreesWithTheCallsOfThisMachine) {
  const SystemFacts facts = probe_system(RootFiles("/"), {});
  utsname names{};
  ASSERT_EQ(::uname(&names), 0);
  EXPECT_EQ(facts.kernel, names.release);
  EXPECT_EQ(facts.machine, names.machine);
  EXPECT_EQ(facts.glibc, ::gnu_get_libc_version());
  EXPECT_THAT(facts.libstdcxx, ::testing::StartsWith("3.4."));
  struct sysinfo about {};
  ASSERT_EQ(::sysinfo(&about), 0);
  EXPECT_EQ(facts.ram_mb, static_cast<std::int64_t>(about.totalram * about.mem_unit >> 20));
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(facts.open_files, files.rlim_cur == RLIM_INFINITY ? -1 : static_cast<std::int64_t>(files.rlim_cur));
  EXPECT_GE(facts.open_files_used, 3);
}

TEST(Mounts, TheNearestOfTheLastOnesHolds) {
  const FakeRoot root({{"/proc/self/mountinfo",
                        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                        "23 22 0:40 / /mnt/my\\040disk rw shared:2 master:1 - nfs4 nas:/disk rw,hard\n"
                        "24 22 0:41 / /home rw - btrfs /dev/sdb rw\n"
                        "25 22 0:42 / /home rw - xfs /dev/sdc rw\n"
                        "broken line\n"}});
  const auto all = mounts(root.files());
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1].point, "/mnt/my disk");
  EXPECT_EQ(mount_over(all, "/mnt/my disk/runs")->type, "nfs4");
  EXPECT_EQ(mount_over(all, "/mnt/my disk2")->type, "ext4");
  EXPECT_EQ(mount_over(all, "/home/a")->type, "xfs");
  EXPECT_EQ(mount_over({}, "/home"), nullptr);
}

TEST(Mounts, ARunFolderIsFoundThroughItsLinks) {
  const FakeRoot root(
      {{"/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:40 / /nas rw - nfs4 nas:/disk rw,hard\n"},
       {"/nas/work/note", ""}});
  root.link("/runs", "/nas/work");
  SystemFacts asked;
  probe_run_folder(root.files(), "/runs/not/there/yet", asked);
  EXPECT_EQ(asked.run_file_system, "nfs4");
  EXPECT_GT(asked.run_free_mb, 0);
  // By name alone no server is asked.
  SystemFacts named;
  probe_run_folder_by_name(root.files(), "/nas/work", named);
  EXPECT_EQ(named.run_file_system, "nfs4");
  EXPECT_EQ(named.run_free_mb, -1);
  EXPECT_EQ(named.run_dir, "/nas/work");
  probe_run_folder_by_name(root.files(), "/elsewhere/", named);
  EXPECT_EQ(named.run_file_system, "ext4");
  EXPECT_GT(named.run_free_mb, 0);
}

TEST(RootFiles, LinksStayInsideTheRoot) {
  const FakeRoot root({{"/opt/real/file", "inside"}});
  root.link("/opt/absolute", "/opt/real");
  root.link("/opt/real/climbing", "../../../../opt/real/file");
  root.link("/opt/circle", "circle");
  root.link("/opt/outside", "/etc/passwd");
  EXPECT_EQ(root.files().text("/opt/absolute/climbing"), "inside");
  EXPECT_EQ(*root.files().resolved("/opt/absolute/climbing"), "/opt/real/file");
  EXPECT_FALSE(root.files().exists("/opt/circle"));
  EXPECT_EQ(root.files().text("/opt/outside"), "");
  EXPECT_THAT(root.files().names("/opt/absolute"), ElementsAre("climbing", "file"));
  EXPECT_EQ(root.files().tail("/opt/real/file", 3), "ide");
}

TEST(RootFiles, AFifoIsNotWaitedFor) {
  const FakeRoot root({{"/proc/note", ""}});
  ASSERT_EQ(::mkfifo(root.host("/proc/meminfo").c_str(), 0600), 0);
  EXPECT_EQ(root.files().text("/proc/meminfo"), "");
  EXPECT_EQ(root.files().text("/proc"), "");
}

}  // namespace
}  // namespace reelgrad
