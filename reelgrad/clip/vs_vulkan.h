// What reelgrad uses of VapourSynth's GPU API: VSVulkan4.h of R81, whose own header needs Vulkan headers of 1.4, which
// most systems do not have. Structs are word for word those of that header, and the table has its entries in its order
// (vs_vulkan_test.cpp compares both with the header that is installed).
#pragma once
#include <VapourSynth4.h>

#include <cstddef>
#include <cstdint>

namespace reelgrad::vulkan {

// Of vulkan_core.h. Handles are pointers on the 64-bit systems that reelgrad runs on.
using VkDeviceSize = std::uint64_t;
using VkInstance = struct VkInstance_T*;
using VkPhysicalDevice = struct VkPhysicalDevice_T*;
using VkDevice = struct VkDevice_T*;
using VkBuffer = struct VkBuffer_T*;
using VkSemaphore = struct VkSemaphore_T*;
using VSGPUTimeline = struct VSGPUTimeline_T;
constexpr std::size_t VK_UUID_SIZE = 16;
constexpr std::size_t VK_LUID_SIZE = 8;
constexpr int kOpaqueFd = 1;  // VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT, and the same bit for semaphores
using PFN_vkVoidFunction = void (*)();
using PFN_vkGetInstanceProcAddr = PFN_vkVoidFunction (*)(VkInstance, const char* name);
struct VkBufferDeviceAddressInfo {
  int type = 1000244001;  // VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO
  const void* next = nullptr;
  VkBuffer buffer = nullptr;
};
using PFN_vkGetBufferDeviceAddress = std::uint64_t (*)(VkDevice, const VkBufferDeviceAddressInfo*);
static_assert(sizeof(void*) == 8);

// clang-format off
struct VSVulkanCoreHandles {
    VkInstance instance;
    VkPhysicalDevice physicalDevice;
    VkDevice device;
    PFN_vkGetInstanceProcAddr getInstanceProcAddr;
    uint32_t computeQueueFamily;
    uint32_t computeQueueIndex;
    uint32_t transferQueueFamily;
    uint32_t transferQueueIndex;
};

struct VSVulkanPlaneInfo {
    VkBuffer buffer;
    VkDeviceSize bufferSize;
    VkSemaphore readySemaphore;
    uint64_t readyValue;
};

struct VSVulkanExportedMemory {
    uint64_t memoryId;
    VkDeviceSize memorySize;
    uint32_t memoryTypeIndex;
    VkDeviceSize offset;
    VkDeviceSize size;
    int handleType;
    intptr_t handle;
};

struct VSVulkanExportedSemaphore {
    int handleType;
    intptr_t handle;
};

struct VSVulkanCoreInfo {
    char deviceName[256];
    int64_t deviceMemory;
    int64_t budget;
    int64_t allocated;
    int64_t limit;
    uint8_t deviceUUID[VK_UUID_SIZE];
    uint8_t deviceLUID[VK_LUID_SIZE];
    uint32_t deviceNodeMask;
    int deviceLUIDValid;
    int exportHandleType;
    int semaphoreExportHandleType;
    int unifiedMemory;
};

struct VSVulkanDeviceListEntry {
    char deviceName[256];
    uint32_t apiVersion;
    int deviceType;
    int64_t deviceMemory;
    int usable;
    char unusableReason[256];
    uint8_t deviceUUID[VK_UUID_SIZE];
    uint8_t deviceLUID[VK_LUID_SIZE];
    uint32_t deviceNodeMask;
    int deviceLUIDValid;
};

// Entries that are not used stand only for their place. Functions with a status return 0 on success.
struct Api {
    int (VS_CC *enumerateVulkanDevices)(VSVulkanDeviceListEntry* entries, int maxEntries, char* error, int errorSize);
    int (VS_CC *setVulkanDevice)(VSCore* core, int deviceIndex, char* error, int errorSize);
    int (VS_CC *getVulkanCoreInfo)(VSCore* core, VSVulkanCoreInfo* info, char* error, int errorSize);
    void (VS_CC *setMaxVRAMUse)();
    int (VS_CC *getVulkanHandles)(VSCore* core, VSVulkanCoreHandles* handles, char* error, int errorSize);
    void (VS_CC *getVulkanFunctions)();
    void (VS_CC *lockVulkanQueue)();
    void (VS_CC *unlockVulkanQueue)();
    VSFrame* (VS_CC *newGPUVideoFrame)(const VSVideoFormat* format, int width, int height, const VSFrame* propSrc, VSCore* core);
    int (VS_CC *getGPUPlane)(const VSFrame* frame, int plane, VSVulkanPlaneInfo* info);
    void (VS_CC *setGPUPlaneProducer)(const VSFrame* frame, int plane, VSGPUTimeline* timeline, uint64_t value);
    void (VS_CC *createGPUTimeline)();
    void (VS_CC *freeGPUTimeline)();
    void (VS_CC *addGPUTimelineRef)();
    void (VS_CC *getGPUTimelineSemaphore)();
    void (VS_CC *gpuTimelineWaitValue)();
    void (VS_CC *createGPUBuffer)();
    void (VS_CC *destroyGPUBuffer)();
    void (VS_CC *allocateGPUMemory)();
    void (VS_CC *freeGPUMemory)();
    void (VS_CC *reserveGPUMemory)();
    void (VS_CC *updateGPUMemoryReservation)();
    void (VS_CC *releaseGPUMemoryReservation)();
    void (VS_CC *compileGPUShader)();
    void (VS_CC *getGPUShaderCode)();
    void (VS_CC *freeGPUShader)();
    void (VS_CC *createGPUExecPool)();
    void (VS_CC *freeGPUExecPool)();
    void (VS_CC *gpuExecPoolWaitIdle)();
    void (VS_CC *gpuExecWaitValue)();
    void (VS_CC *gpuExecPoolTimeline)();
    void (VS_CC *gpuExecAcquire)();
    void (VS_CC *gpuExecCommandBuffer)();
    void (VS_CC *gpuExecReadsFrame)();
    void (VS_CC *gpuExecWritesPlane)();
    void (VS_CC *gpuExecUsesBuffer)();
    void (VS_CC *gpuExecUsesMemory)();
    void (VS_CC *gpuExecRetain)();
    void (VS_CC *gpuExecSubmit)();
    void (VS_CC *gpuExecAbandon)();
    int (VS_CC *exportGPUPlane)(const VSFrame* frame, int plane, VSVulkanExportedMemory* out, char* error, int errorSize);
    int (VS_CC *exportGPUSemaphore)(VSCore* core, VkSemaphore semaphore, VSVulkanExportedSemaphore* out, char* error, int errorSize);
    void (VS_CC *waitGPUFrame)();
    const VSFrame* (VS_CC *getExportableFrameFilter)(int n, VSNode* node, VSFrameContext* context, char* error, int errorSize);
};
// clang-format on

// The table has no version of its own: it is this one in VapourSynth API 4.3 from R81 on, and moves with the API.
constexpr int kApiVersion = VS_MAKE_VERSION(4, 3);
constexpr int kFirstCore = 81;

// A plane's address on its card: VapourSynth makes them all with that usage.
class AddressOf {
 public:
  explicit AddressOf(const VSVulkanCoreHandles& handles)
      : device_(handles.device),
        ask_(reinterpret_cast<PFN_vkGetBufferDeviceAddress>(
            handles.getInstanceProcAddr(handles.instance, "vkGetBufferDeviceAddress"))) {}
  std::uint64_t operator()(VkBuffer buffer) const {
    const VkBufferDeviceAddressInfo info{.buffer = buffer};
    return ask_(device_, &info);
  }

 private:
  VkDevice device_;
  PFN_vkGetBufferDeviceAddress ask_;
};

inline const Api& table(const VSAPI* api) {
  return *reinterpret_cast<const Api*>(api->getVulkanAPI());
}

}  // namespace reelgrad::vulkan
