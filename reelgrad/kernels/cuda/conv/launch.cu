#include "reelgrad/kernels/cuda/conv/launch.h"

#include <array>
#include <string>

namespace reelgrad::cuda {
namespace conv {
namespace {

// Of the driver, found at run time: nothing of ours is linked to it.
using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

EncodeTiled find_encode_tiled() {
  constexpr unsigned kSinceCuda12 = 12000;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSinceCuda12, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || entry == nullptr)
    fail("this driver has no cuTensorMapEncodeTiled, which the convolutions for compute capability 9.0 need");
  return reinterpret_cast<EncodeTiled>(entry);
}

}  // namespace

CUtensorMap tensor_map(const ConvPicture& picture, ElementType element, int box_width, int box_height) {
  static const EncodeTiled encode = find_encode_tiled();
  constexpr cuuint64_t kElementBytes = 2;
  const auto extent = [](int n) { return static_cast<cuuint64_t>(n); };
  const auto bytes = [](std::int64_t step) { return static_cast<cuuint64_t>(step) * kElementBytes; };
  const std::array<cuuint64_t, 4> size{extent(picture.channels), extent(picture.width), extent(picture.height),
                                       extent(picture.batch)};
  const std::array<cuuint64_t, 3> step{bytes(picture.pixel_step), bytes(picture.row_step), bytes(picture.image_step)};
  const std::array<cuuint32_t, 4> box{kConvBlock, static_cast<cuuint32_t>(box_width),
                                      static_cast<cuuint32_t>(box_height), 1};
  const std::array<cuuint32_t, 4> every{1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, element == ElementType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
             picture.data, size.data(), step.data(), box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    fail("convolution: the driver refuses a picture of " + std::to_string(picture.batch) + " × " +
         std::to_string(picture.height) + " × " + std::to_string(picture.width) + " × " +
         std::to_string(picture.channels) + " (error " + std::to_string(result) +
         "); data and steps must be multiples of 16 bytes");
  return map;
}

void require_channels(const char* what, int in, int out) {
  if (in <= kConvBlock && out <= kConvBlock) return;
  fail(std::string(what) + ": " + std::to_string(in) + " to " + std::to_string(out) + " channels, at most 64 to 64");
}

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

namespace {

constexpr int kFirstMajor = 8, kHopper = 90;

// As 10 major + minor; 0 where the driver is too old.
int capability_of(int device) {
  constexpr int kDriver = 12030;
  int driver = 0, major = 0, minor = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver < kDriver) return 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return 10 * major + minor;
}

}  // namespace

bool kernels_overlap() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= kHopper / 10;
}

}  // namespace conv

bool has_conv(int device) {
  return conv::capability_of(device) == conv::kHopper;
}

bool warp::has_conv(int device) {
  return conv::capability_of(device) >= 10 * conv::kFirstMajor;
}

}  // namespace reelgrad::cuda
