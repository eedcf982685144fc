#include "reelgrad/doctor/probes/device_nodes_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reelgrad/doctor/testing/fake_root.h"

namespace reelgrad {
namespace {

using test::FakeRoot;
using ::testing::ElementsAre;

std::vector<std::string> paths_of(const std::vector<DeviceNodeFacts>& nodes) {
  std::vector<std::string> paths;
  for (const DeviceNodeFacts& node : nodes) paths.push_back(node.path);
  return paths;
}

TEST(DeviceNodes, CardsByNumberThenTheOthers) {
  const FakeRoot root;
  for (const char* name : {"nvidia-uvm", "nvidia10", "nvidia9", "nvidia0", "nvidiactl", "nvidia-modeset", "dxg", "null",
                           "nvidia-uvm-tools", "nvidia1x"})
    root.write(std::string("/dev/") + name, "");
  EXPECT_THAT(
      paths_of(probe_device_nodes(root.files(), NodeCheck::by_mode)),
      ElementsAre("/dev/nvidia0", "/dev/nvidia9", "/dev/nvidia10", "/dev/dxg", "/dev/nvidia-uvm", "/dev/nvidiactl"));
  EXPECT_TRUE(probe_device_nodes(FakeRoot().files(), NodeCheck::opened).empty());
}

TEST(DeviceNodes, ByModeAnOwnerNeedsBothRights) {
  const FakeRoot root({{"/dev/nvidia0", ""}, {"/dev/nvidiactl", ""}});
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  root.write("/etc/passwd", "other:x:4242:1::/:/bin/sh\nalice:x:" + user + ":1::/:/bin/sh\n");
  root.write("/etc/group", "video:x:" + group + ":\n");
  ASSERT_EQ(::chmod(root.host("/dev/nvidia0").c_str(), 0466), 0);
  ASSERT_EQ(::chmod(root.host("/dev/nvidiactl").c_str(), 0600), 0);
  const auto nodes = probe_device_nodes(root.files(), NodeCheck::by_mode);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_FALSE(nodes[0].usable);
  EXPECT_EQ(nodes[0].error, "Permission denied");
  EXPECT_EQ(nodes[0].owner, "alice:video 0466");
  EXPECT_TRUE(nodes[1].usable);
  EXPECT_EQ(nodes[1].error, "");
}

TEST(DeviceNodes, OpeningTellsWhatIsNoDevice) {
  const FakeRoot root({{"/dev/nvidia0", ""}});
  root.link("/dev/nvidia1", "missing");
  root.link("/dev/nvidiactl", "/dev/null");  // followed by the system: this machine's own
  ASSERT_EQ(::mkfifo(root.host("/dev/nvidia-uvm").c_str(), 0600), 0);
  const auto nodes = probe_device_nodes(root.files(), NodeCheck::opened);
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].error, "No such device");
  EXPECT_EQ(nodes[1].error, "No such file or directory");
  EXPECT_EQ(nodes[2].error, "No such device");
  EXPECT_FALSE(nodes[0].usable || nodes[1].usable || nodes[2].usable);
  EXPECT_TRUE(nodes[3].usable);
}

}  // namespace
}  // namespace reelgrad
