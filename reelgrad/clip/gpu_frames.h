// Frames that lie in a card's memory. clip/ hands their planes over as exported Vulkan memory and knows no CUDA: what
// reads them is behind these interfaces (frames/gpu_plane_import.h).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "reelgrad/base/descriptor.h"
#include "reelgrad/clip/video_format.h"

namespace reelgrad {

// A card's UUID, which is the same to CUDA and to Vulkan.
using CardId = std::array<std::uint8_t, 16>;
std::string card_text(const CardId& card);                     // "GPU-00112233-4455-6677-8899-aabbccddeeff"
std::optional<CardId> parse_card(std::string_view card_text);  // "MIG-…", too

// How a clip's frames reach us, and why not the other way.
struct FramePath {
  bool gpu = false;  // they can come in the card's memory (Clip::on_gpu)
  std::string why;
};

// Where a plane lies: `offset` bytes into an allocation.
struct MemoryPlace {
  std::uint64_t memory_id = 0;   // of the allocation: never another's
  std::size_t memory_bytes = 0;  // of the allocation
  std::size_t offset = 0;
  bool operator==(const MemoryPlace&) const = default;
};

// One plane: rows of `stride_bytes`, the first of them at `memory`.
struct GpuPlane {
  MemoryPlace memory;
  std::ptrdiff_t stride_bytes = 0;
  std::uint64_t semaphore = 0;    // the timeline semaphore that says when the plane is complete; 0: it is
  std::uint64_t ready_value = 0;  // the value to wait for
};

struct GpuFrame {
  VideoFormat format;
  int width = 0, height = 0;
  std::array<GpuPlane, 3> planes;
  // A plane's allocation and a semaphore as opaque file descriptors, each time another one. They take long. To be
  // called during read() only.
  std::function<Descriptor(int plane)> export_memory;
  std::function<Descriptor(std::uint64_t semaphore)> export_semaphore;
  // Keeps the frame; to be let go once it has been read.
  std::shared_ptr<const void> owner;
};

// What a reader makes of a frame: memory of its own, for as long as it lives.
class GpuPicture {
 public:
  GpuPicture() = default;
  GpuPicture(const GpuPicture&) = delete;
  GpuPicture& operator=(const GpuPicture&) = delete;
  virtual ~GpuPicture() = default;
};

// Reads the frames of one clip.
class GpuFrameReader {
 public:
  virtual ~GpuFrameReader() = default;  // waits until nothing is being read, lets go of every frame
  // Called on VapourSynth's threads, several at once. Need not wait for the frame to be complete.
  virtual std::shared_ptr<const GpuPicture> read(GpuFrame frame) = 0;
};

// The planes of a frame that is being made, for what writes them on the card. Valid as long as it lives.
class GpuCanvas {
 public:
  GpuCanvas() = default;
  GpuCanvas(const GpuCanvas&) = delete;
  GpuCanvas& operator=(const GpuCanvas&) = delete;
  virtual ~GpuCanvas() = default;
};

// Opens the frames that one filter makes.
class GpuFrameWriter {
 public:
  virtual ~GpuFrameWriter() = default;
  // Called on VapourSynth's threads, several at once. The frame has no semaphores and no owner, and is the caller's
  // alone; whoever writes it is done with it before the caller goes on.
  virtual std::shared_ptr<const GpuCanvas> open(const GpuFrame& frame) = 0;
};

// A card that frames are to come to, or to be made on.
class GpuFrameTarget {
 public:
  virtual ~GpuFrameTarget() = default;
  virtual CardId card() const = 0;
  virtual std::unique_ptr<GpuFrameReader> open_reader() const = 0;
  virtual std::unique_ptr<GpuFrameWriter> open_writer() const = 0;
};

}  // namespace reelgrad
