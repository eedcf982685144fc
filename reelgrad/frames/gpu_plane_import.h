// Frames that VapourSynth has made on the card, as pictures of our own: its Vulkan memory opened in CUDA, waited for
// and copied on the card.
#pragma once
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/frames/packed_picture.h"

struct CUevent_st;  // cudaEvent_t without CUDA's headers

namespace reelgrad {

// One picture in the card's memory, packed as frames are in the pool. It outlives its frame, its clip and its reader.
class DevicePicture : public GpuPicture {
 public:
  // `block` uint8 [PackedLayout(format, width, height).bytes] is complete once `ready` is; null: already.
  DevicePicture(const VideoFormat& format, int width, int height, torch::Tensor block,
                std::shared_ptr<CUevent_st> ready);

  // To be called before what reads the picture is queued on `stream`: that finds it complete, and may go on reading
  // when the picture has gone. Waits for nothing on the host.
  void wait_on(const c10::Stream& stream) const;

  PictureRef ref() const;  // readable by kernels on this card
  const torch::Tensor& block() const { return block_; }
  const PackedLayout& layout() const { return layout_; }
  const VideoFormat& format() const { return format_; }
  int width() const { return width_; }
  int height() const { return height_; }

 private:
  VideoFormat format_;
  int width_, height_;
  PackedLayout layout_;
  torch::Tensor block_;
  std::shared_ptr<CUevent_st> ready_;
};

// The picture of a frame of a clip that Clip::on_gpu brought to a CudaFrameTarget; nullptr: Frame::view() has the
// planes.
std::shared_ptr<const DevicePicture> device_picture(const Frame& frame);
const DevicePicture* device_picture(const FrameView& view);

// A view for who needs planes in host memory: the same one, or, of a picture on a card, one of a copy that this owns.
class HostView {
 public:
  explicit HostView(const FrameView& view);  // waits for the copy
  const FrameView& get() const { return view_; }

 private:
  torch::Tensor block_;
  FrameView view_;
};

// What OpenOptions::card calls this device; nullopt for the CPU.
std::optional<CardId> card_of(torch::Device device);

struct ImportOptions {
  // Allocations of VapourSynth's that one reader has open; the one unused for longest is closed first. VapourSynth
  // makes many frames in one allocation.
  int max_imports = 32;
  // Frames of VapourSynth's that one reader keeps because the card has not read them yet.
  int max_unread = 8;
};

// Of all readers of a target together.
struct ImportCounts {
  std::int64_t frames = 0;   // read
  std::int64_t imports = 0;  // allocations opened; of them open now:
  std::int64_t open_imports = 0;
  std::int64_t open_semaphores = 0;
  std::int64_t unread = 0;  // frames kept now
};

struct ImportCounters;

// A card as the place that frames come to and are made. Thread-safe; may go before its readers and writers.
class CudaFrameTarget : public GpuFrameTarget {
 public:
  explicit CudaFrameTarget(torch::Device device, const ImportOptions& options = {});

  CardId card() const override { return card_; }
  std::unique_ptr<GpuFrameReader> open_reader() const override;
  std::unique_ptr<GpuFrameWriter> open_writer() const override;  // gpu_plane_export.h
  ImportCounts counts() const;

 private:
  torch::Device device_;
  ImportOptions options_;
  CardId card_;
  std::shared_ptr<ImportCounters> counters_;
};

// Where frames that this device works on are best; nullptr for the CPU.
std::unique_ptr<CudaFrameTarget> frame_target(torch::Device device);

}  // namespace reelgrad
