// A Vulkan loader of version 1.3.280 with two cards. FAKE_VULKAN_RESULT: what vkCreateInstance says.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED std::int32_t vkEnumerateInstanceVersion(std::uint32_t* version) {
  *version = 1u << 22 | 3u << 12 | 280u;
  return 0;
}

EXPORTED std::int32_t vkCreateInstance(const void*, const void*, void** instance) {
  static int made;
  *instance = &made;
  const char* result = std::getenv("FAKE_VULKAN_RESULT");
  return result ? std::atoi(result) : 0;
}

EXPORTED std::int32_t vkEnumeratePhysicalDevices(void*, std::uint32_t* count, void** cards) {
  *count = 2;
  cards[0] = reinterpret_cast<void*>(std::uintptr_t{1});
  cards[1] = reinterpret_cast<void*>(std::uintptr_t{2});
  return 0;
}

EXPORTED void vkGetPhysicalDeviceProperties(void* card, unsigned char* properties) {
  constexpr std::size_t kSize = 824, kNameOffset = 20;  // of VkPhysicalDeviceProperties
  std::memset(properties, 0, kSize);
  const bool first = reinterpret_cast<std::uintptr_t>(card) == 1;
  const std::uint32_t version = 1u << 22 | (first ? 4u : 2u) << 12 | 303u;
  std::memcpy(properties, &version, sizeof version);
  const char* name = first ? "NVIDIA H200" : "llvmpipe (LLVM 15.0.6, 256 bits)";
  std::memcpy(properties + kNameOffset, name, std::strlen(name));
}

EXPORTED void vkDestroyInstance(void*, const void*) {}
