// For training loops of your own: crops of a VapourSynth script as tensors, decoded ahead. Exported by libreelgrad.so;
// examples/loader_example.cpp trains a module with it.
#pragma once
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "reelgrad/base/api.h"

namespace reelgrad {

// What is read and how it is cut; docs/config.md says more of the keys of the same names.
struct FrameLoaderOptions {
  std::filesystem::path script;             // a .vpy: output 0 is the target, output 1 the input; or
  std::filesystem::path inputs, targets;    // two folders of images with equal names
  std::map<std::string, std::string> args;  // variables set in the script

  int scale = 2;  // size of the target over the input
  int batch = 16;
  int crop_px = 64;              // side of the input crop, pixels
  int window = 1;                // frames of an input; an odd number
  int frame_step = 1;            // distance of neighbours in a window, frames
  std::string color = "rgb";     // rgb | gray | yuv444
  bool augment = true;           // flips and quarter turns
  int reuse = 16;                // crops per decoded frame
  int segment_frames = 16;       // frames decoded in one go
  int pool_frames = 256;         // frames held ready to be cropped
  std::uint64_t seed = 1;        // of every draw
  std::int64_t first_batch = 0;  // next() begins with this one: where an earlier loop has stopped

  torch::Device device = torch::kCPU;  // a card without a number: the current one
};

// float32 in [0, 1] on the device.
struct FrameBatch {
  torch::Tensor input;   // [N, C, H, W], or [N, T, C, H, W] when the window is larger than 1
  torch::Tensor target;  // [N, C, H * scale, W * scale], of the window's middle frame
};

// Batches without end, the same for the same options whatever the speed and the number of threads; a card's values lie
// within 2^-22 of the CPU's. Threads of its own decode; one thread calls next().
class REELGRAD_API FrameLoader {
 public:
  // Opens the script or the folders. Throws reelgrad::Error: usage for an option, or a script, that does not fit
  // (naming both), failed when VapourSynth or a file cannot be read.
  explicit FrameLoader(const FrameLoaderOptions& options);
  FrameLoader(FrameLoader&&) noexcept;
  FrameLoader& operator=(FrameLoader&&) noexcept;
  ~FrameLoader();

  // Waits until the frames are decoded; on a card the tensors are filled asynchronously on the current stream. Throws
  // the error of a frame that cannot be had, naming it.
  FrameBatch next();

  std::string describe() const;  // one line: frames, segments, pool place and size

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
