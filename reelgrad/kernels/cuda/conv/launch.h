// Host side of the launches.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include "reelgrad/kernels/conv.h"
#include "reelgrad/kernels/cuda/conv/tile.h"
#include "reelgrad/kernels/cuda/device.h"

namespace reelgrad::cuda::conv {

// Boxes of 64 channels × `box_width` × `box_height` pixels of one image.
CUtensorMap tensor_map(const ConvPicture& picture, ElementType element, int box_width, int box_height);

inline CUtensorMap rim_map(const ConvPicture& picture, ElementType element) {
  return tensor_map(picture, element, kRimWidth, kRimHeight);
}

inline CUtensorMap tile_map(const ConvPicture& picture, ElementType element) {
  return tensor_map(picture, element, kTileWidth, kTileHeight);
}

int multiprocessors();

bool kernels_overlap();  // on this card, see launch()

inline bool is_empty(const ConvPicture& picture) {
  return picture.batch == 0 || picture.height == 0 || picture.width == 0;
}

// Throws unless both are at most 64.
void require_channels(const char* what, int in, int out);

// The kernel may begin while the one before it in the stream ends: it first calls ptx::wait_for_earlier_kernels().
template <class Params>
void launch(void (*kernel)(Params), const char* name, dim3 blocks, int threads, int shared_bytes, const Params& params,
            CUstream_st* stream) {
  if (blocks.x == 0) return;
  if (shared_bytes > 0)
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = kernels_overlap() ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, params);
  check_launch(name);
}

}  // namespace reelgrad::cuda::conv
