#include "reelgrad/doctor/probes/pci_probe.h"

#include <gtest/gtest.h>

#include "reelgrad/doctor/testing/fake_root.h"

namespace reelgrad {
namespace {

using test::FakeRoot;

void add_pci_device(const FakeRoot& root, const std::string& address, const char* vendor, const char* device_class) {
  const std::string folder = "/sys/devices/pci0000:00/" + address;
  root.write(folder + "/vendor", std::string(vendor) + "\n");
  root.write(folder + "/class", std::string(device_class) + "\n");
  root.write(folder + "/device", "0x2684\n");
  root.link("/sys/bus/pci/devices/" + address, "../../../devices/pci0000:00/" + address);
}

TEST(PciProbe, TakesDisplayAndComputeCardsOfOneMakerInOrder) {
  const FakeRoot root;
  add_pci_device(root, "0000:41:00.0", "0x10de", "0x030200");
  add_pci_device(root, "0000:01:00.0", "0x10de", "0x030000");
  add_pci_device(root, "0000:01:00.1", "0x10de", "0x040300");  // its sound
  add_pci_device(root, "0000:02:00.0", "0x1002", "0x030000");  // somebody else's
  add_pci_device(root, "0000:05:00.0", "0x10de", "0x068000");  // a switch
  const auto cards = probe_pci(root.files());
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[0].address, "0000:01:00.0");
  EXPECT_EQ(cards[1].address, "0000:41:00.0");
  EXPECT_EQ(cards[0].device_id, "2684");
  EXPECT_EQ(cards[0].bound_driver, "");
  EXPECT_TRUE(cards[0].answers);
  EXPECT_EQ(cards[0].link_width, 0);
}

TEST(PciProbe, ReadsTheLinkAndTheDriver) {
  const FakeRoot root;
  add_pci_device(root, "0000:01:00.0", "0x10de", "0x030000");
  const std::string folder = "/sys/devices/pci0000:00/0000:01:00.0/";
  root.write(folder + "current_link_speed", "2.5 GT/s PCIe\n");
  root.write(folder + "max_link_speed", "16.0 GT/s PCIe\n");
  root.write(folder + "current_link_width", "4\n");
  root.write(folder + "max_link_width", "16\n");
  root.write(folder + "config", std::string("\xde\x10\x84\x26\x07", 5));
  root.write("/sys/bus/pci/drivers/nouveau/note", "");
  root.link(folder + "driver", "../../../bus/pci/drivers/nouveau");
  const PciCardFacts card = probe_pci(root.files()).at(0);
  EXPECT_EQ(card.bound_driver, "nouveau");
  EXPECT_EQ(card.link_width, 4);
  EXPECT_EQ(card.link_width_max, 16);
  EXPECT_EQ(card.link_speed_gts, 2.5);
  EXPECT_EQ(card.link_speed_max_gts, 16.0);
  EXPECT_TRUE(card.answers);
}

TEST(PciProbe, ACardThatHasFallenOffTheBusDoesNotAnswer) {
  const FakeRoot root;
  add_pci_device(root, "0000:01:00.0", "0x10de", "0x030000");
  const std::string folder = "/sys/devices/pci0000:00/0000:01:00.0/";
  root.write(folder + "config", std::string(64, '\xff'));
  root.write(folder + "current_link_speed", "Unknown\n");
  root.write(folder + "current_link_width", "63\n");
  const PciCardFacts card = probe_pci(root.files()).at(0);
  EXPECT_FALSE(card.answers);
  EXPECT_EQ(card.link_width, 0);
  EXPECT_EQ(card.link_speed_gts, 0);
}

TEST(PciProbe, NoBusIsNoCard) {
  EXPECT_TRUE(probe_pci(FakeRoot().files()).empty());
}

}  // namespace
}  // namespace reelgrad
