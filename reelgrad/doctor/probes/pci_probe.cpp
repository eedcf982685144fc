#include "reelgrad/doctor/probes/pci_probe.h"

#include <charconv>
#include <string_view>

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "/sys/bus/pci/devices";
constexpr double kFastestLinkGts = 256;  // beyond every generation: such figures are no speeds
constexpr int kWidestLink = 32;

// "16.0 GT/s PCIe"; a card that does not answer has "Unknown".
double link_speed(const std::string& text) {
  double speed = 0;
  std::from_chars(text.data(), text.data() + text.size(), speed);
  return speed > 0 && speed <= kFastestLinkGts ? speed : 0;
}

int link_width(const std::string& text) {
  int lanes = 0;
  std::from_chars(text.data(), text.data() + text.size(), lanes);
  return lanes > 0 && lanes <= kWidestLink ? lanes : 0;
}

// The vendor and device numbers of a card that has fallen off the bus read as all ones. The kernel remembers them in
// files of their own, so this asks the card itself.
bool answers(const RootFiles& files, const fs::path& device) {
  return files.text(device / "config", 4) != "\xff\xff\xff\xff";
}

PciCardFacts card_facts(const RootFiles& files, const std::string& address) {
  const fs::path device = fs::path(kDevices) / address;
  PciCardFacts card{.address = address};
  const std::string id = files.first_line(device / "device");
  card.device_id = id.starts_with("0x") ? id.substr(2) : id;
  if (const auto driver = files.resolved(device / "driver")) card.bound_driver = driver->filename().string();
  card.answers = answers(files, device);
  card.link_width = link_width(files.first_line(device / "current_link_width"));
  card.link_width_max = link_width(files.first_line(device / "max_link_width"));
  card.link_speed_gts = link_speed(files.first_line(device / "current_link_speed"));
  card.link_speed_max_gts = link_speed(files.first_line(device / "max_link_speed"));
  return card;
}

}  // namespace

std::vector<PciCardFacts> probe_pci(const RootFiles& files) {
  std::vector<PciCardFacts> cards;
  for (const std::string& address : files.names(kDevices)) {
    const fs::path device = fs::path(kDevices) / address;
    const bool nvidia = files.first_line(device / "vendor") == "0x10de";
    // Class 03: display controllers, among them compute cards (0302).
    if (nvidia && files.first_line(device / "class").starts_with("0x03")) cards.push_back(card_facts(files, address));
  }
  return cards;
}

}  // namespace reelgrad
