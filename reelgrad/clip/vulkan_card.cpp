#include "reelgrad/clip/vulkan_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "reelgrad/base/text.h"
#include "reelgrad/clip/vs_vulkan.h"

namespace reelgrad {
namespace {

using vulkan::Api;
using vulkan::VSVulkanCoreInfo;
using vulkan::VSVulkanDeviceListEntry;

using ErrorText = std::array<char, 512>;

bool is_card(const std::uint8_t (&uuid)[vulkan::VK_UUID_SIZE], const CardId& card) {
  return std::equal(card.begin(), card.end(), uuid);
}

// Empty: the functions are where we take them to be.
std::string api_refusal(const VSAPI* api, VSCore* core) {
  VSCoreInfo2 info;
  api->getCoreInfo2(core, &info);
  const int version = api->getAPIVersion();
  if (version == vulkan::kApiVersion && info.coreVersion >= vulkan::kFirstCore) return "";
  return fmt::format("VapourSynth R{} has API {}.{}, and reelgrad takes frames on the card from R{} with API 4.3",
                     info.coreVersion, version >> 16, version & 0xFFFF, vulkan::kFirstCore);
}

struct Devices {
  std::array<VSVulkanDeviceListEntry, 32> entries{};
  int count = 0;
  std::string error;
};

// Asked once a process: it takes Vulkan a moment, and cards do not come and go.
const Devices& list_devices(const Api& vk) {
  static const Devices listed = [&] {
    Devices devices;
    ErrorText error{};
    const int size = static_cast<int>(devices.entries.size());
    devices.count = std::min(size, vk.enumerateVulkanDevices(devices.entries.data(), size, error.data(), error.size()));
    if (devices.count < 0) devices.error = error.data();
    return devices;
  }();
  return listed;
}

// The index of the card among Vulkan's devices, or -1; into `support` its name, or why it cannot be used.
int find_device(const Api& vk, const CardId& card, CardSupport& support) {
  const Devices& devices = list_devices(vk);
  if (devices.count < 0) {
    support.why_not = fmt::format("Vulkan cannot be used: {}", devices.error);
    return -1;
  }
  std::vector<std::string> others;
  for (int i = 0; i < devices.count; ++i) {
    const VSVulkanDeviceListEntry& entry = devices.entries[i];
    if (!is_card(entry.deviceUUID, card)) {
      others.emplace_back(entry.deviceName);
      continue;
    }
    support.name = entry.deviceName;
    if (entry.usable) return i;
    support.why_not = fmt::format("Vulkan on {}: {}", entry.deviceName, entry.unusableReason);
    return -1;
  }
  support.why_not = others.empty() ? "Vulkan finds no device (is the driver's Vulkan part installed?)"
                                   : fmt::format("Vulkan does not find the card {}; it finds {}", card_text(card),
                                                 join(others, ", "));
  return -1;
}

}  // namespace

CardSupport use_card(const VSAPI* api, VSCore* core, const CardId& card) {
  CardSupport support{.card = card, .why_not = api_refusal(api, core)};
  if (!support.why_not.empty()) return support;
  const Api& vk = vulkan::table(api);
  const int device = find_device(vk, card, support);
  if (device < 0) return support;
  ErrorText error{};
  support.usable = vk.setVulkanDevice(core, device, error.data(), error.size()) == 0;
  if (!support.usable) support.why_not = fmt::format("Vulkan on {}: {}", support.name, error.data());
  return support;
}

std::string export_refusal(const VSAPI* api, VSCore* core, const CardId& card) {
  if (std::string refusal = api_refusal(api, core); !refusal.empty()) return refusal;
  ErrorText error{};
  VSVulkanCoreInfo info{};
  if (vulkan::table(api).getVulkanCoreInfo(core, &info, error.data(), error.size()) != 0) {
    return fmt::format("Vulkan cannot be used: {}", error.data());
  }
  if (!is_card(info.deviceUUID, card)) {
    return fmt::format("VapourSynth makes them on {}, not on the card {}", info.deviceName, card_text(card));
  }
  if (info.exportHandleType == vulkan::kOpaqueFd && info.semaphoreExportHandleType == vulkan::kOpaqueFd) return "";
  return fmt::format("the Vulkan driver of {} does not share memory and semaphores as file descriptors",
                     info.deviceName);
}

}  // namespace reelgrad
