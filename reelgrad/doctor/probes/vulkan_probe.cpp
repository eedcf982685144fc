// The few functions of Vulkan that are needed, declared here: its headers are not on every machine that builds this.
#include "reelgrad/doctor/probes/vulkan_probe.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "reelgrad/base/dynamic_library.h"

namespace reelgrad {
namespace {

using VulkanResult = std::int32_t;  // 0: success; negative ones are errors
using VulkanInstance = struct VulkanInstanceOpaque*;
using VulkanCard = struct VulkanCardOpaque*;
constexpr VulkanResult kVulkanIncomplete = 5, kVulkanNoDriver = -9;
constexpr std::uint32_t kVulkanVersion1_0 = 1u << 22;

struct VulkanInstanceInfo {
  std::int32_t type = 1;  // VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
  const void* next = nullptr;
  std::uint32_t flags = 0;
  const void* application = nullptr;
  std::uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  std::uint32_t extension_count = 0;
  const char* const* extensions = nullptr;
};

// Up to the name; limits and more follow, 824 bytes in all.
struct VulkanCardProperties {
  std::uint32_t api_version, driver_version, vendor, device;
  std::int32_t device_type;
  std::array<char, 256> name;
  std::array<char, 2048> rest;
};

std::uint32_t vulkan_major(std::uint32_t version) {
  return version >> 22 & 0x7f;
}

std::uint32_t vulkan_minor(std::uint32_t version) {
  return version >> 12 & 0x3ff;
}

std::string vulkan_error(const char* function, VulkanResult result) {
  return fmt::format("{} says {}{}", function, result,
                     result == kVulkanNoDriver ? " (VK_ERROR_INCOMPATIBLE_DRIVER: no driver is installed)" : "");
}

std::vector<std::string> vulkan_cards(const DynamicLibrary& vulkan, VulkanInstance instance, std::string& error) {
  auto* enumerate =
      vulkan.function<VulkanResult(VulkanInstance, std::uint32_t*, VulkanCard*)>("vkEnumeratePhysicalDevices");
  auto* describe = vulkan.function<void(VulkanCard, VulkanCardProperties*)>("vkGetPhysicalDeviceProperties");
  std::vector<std::string> names;
  if (!enumerate || !describe) return names;
  std::array<VulkanCard, 64> cards{};
  auto count = static_cast<std::uint32_t>(cards.size());
  const VulkanResult result = enumerate(instance, &count, cards.data());
  if (result != 0 && result != kVulkanIncomplete) {
    error = vulkan_error("vkEnumeratePhysicalDevices", result);
    return names;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    VulkanCardProperties about{};
    describe(cards[i], &about);
    const std::string name(about.name.data(), ::strnlen(about.name.data(), about.name.size()));
    names.push_back(fmt::format("{}, {}.{}", name, vulkan_major(about.api_version), vulkan_minor(about.api_version)));
  }
  return names;
}

}  // namespace

VulkanFacts probe_vulkan(const std::string& loader) {
  VulkanFacts facts{.outcome = Outcome::failed};
  const DynamicLibrary vulkan(loader);
  facts.error = vulkan.error();
  if (!vulkan) return facts;
  std::uint32_t version = kVulkanVersion1_0;  // loaders of 1.0 lack the function
  if (auto* ask = vulkan.function<VulkanResult(std::uint32_t*)>("vkEnumerateInstanceVersion")) ask(&version);
  facts.loader = fmt::format("{}.{}.{}", vulkan_major(version), vulkan_minor(version), version & 0xfff);

  auto* create =
      vulkan.function<VulkanResult(const VulkanInstanceInfo*, const void*, VulkanInstance*)>("vkCreateInstance");
  VulkanInstance instance = nullptr;
  const VulkanInstanceInfo info;
  const VulkanResult created = create ? create(&info, nullptr, &instance) : kVulkanNoDriver;
  if (created != 0) {
    facts.error = vulkan_error("vkCreateInstance", created);
    return facts;
  }
  facts.devices = vulkan_cards(vulkan, instance, facts.error);
  facts.outcome = facts.error.empty() ? Outcome::ok : Outcome::failed;
  if (auto* destroy = vulkan.function<void(VulkanInstance, const void*)>("vkDestroyInstance"))
    destroy(instance, nullptr);
  return facts;
}

}  // namespace reelgrad
