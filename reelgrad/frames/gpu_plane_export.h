// New frames of VapourSynth's on the card, as what our kernels write into: its Vulkan memory opened in CUDA.
#pragma once
#include <torch/types.h>

#include <array>
#include <memory>

#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

struct ImportCounters;

// Keeps the memory of its planes open. Kernels that write it must have ended when it goes.
class CudaCanvas : public GpuCanvas {
 public:
  using Memory = std::array<std::shared_ptr<const void>, 3>;
  CudaCanvas(const MutablePictureRef& ref, Memory memory) : ref_(ref), memory_(std::move(memory)) {}
  const MutablePictureRef& ref() const { return ref_; }

 private:
  MutablePictureRef ref_;
  Memory memory_;
};

// Of a view whose canvas a CudaFrameTarget's writer opened; nullptr: it has planes in host memory.
const CudaCanvas* cuda_canvas(const MutableFrameView& view);

// Plane `plane` of a picture, in host memory or on this card, into that of a canvas of the same format. Queued on the
// current stream; the picture must live until that is done.
void copy_plane_to_canvas(const FrameView& from, const CudaCanvas& to, int plane);

// Has at most so many allocations open that nobody writes to.
std::unique_ptr<GpuFrameWriter> make_cuda_frame_writer(torch::Device device, int max_imports,
                                                       std::shared_ptr<ImportCounters> counters);

}  // namespace reelgrad
