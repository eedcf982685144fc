// Pictures of twice the height and width by bilinear interpolation (align_corners=False: the samples of a picture lie
// at the middles of its pixels, and beyond the border the border's are repeated), and the way back of gradients. Each
// result is a sum of its own, in one order: the same bits each time.
#pragma once
#include <cstdint>

#include "reelgrad/kernels/gather.h"

struct CUstream_st;

namespace reelgrad {

// The smaller of two pictures [N, H, W, C], both without gaps between elements.
struct Doubling {
  ElementType element = ElementType::f32;  // of both; sums are in float32
  int batch = 0, height = 0, width = 0;
  int channels = 0;  // whole units of kDoublingUnitBytes
};

constexpr int kDoublingUnitBytes = 16;  // where data begins, too

namespace cuda {

// `in` [N, H, W, C] -> `out` [N, 2H, 2W, C]. Asynchronous on the stream; can be captured.
void double_bilinear(const Doubling& doubling, const void* in, void* out, CUstream_st* stream);

// Gradients of out -> gradients of in.
void double_bilinear_backward(const Doubling& doubling, const void* of_out, void* of_in, CUstream_st* stream);

}  // namespace cuda
}  // namespace reelgrad
