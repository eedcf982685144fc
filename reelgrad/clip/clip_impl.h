// What Clip and Frame hold; for the files of this folder and their tests.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/core.h"
#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/gpu_sink.h"
#include "reelgrad/clip/vs_convert.h"

namespace reelgrad {

struct Clip::Impl {
  std::shared_ptr<const Core> core;  // destroyed last
  Node source;                       // of frames in host memory, or in a card's
  ClipInfo info;
  std::string name;
  std::vector<std::string> files;  // of each frame, where frames are images
  FramePath path;

  // Of a clip made by Clip::on_gpu: the clip whose frames are read, and what was made of them.
  std::shared_ptr<const Impl> origin;
  std::shared_ptr<PicturesInTransit> pictures;

  // Takes the node. `host_reason` says why its frames are not in a card's memory, when they are not. Throws usage when
  // the node's format or size is variable or not supported.
  Impl(std::shared_ptr<const Core> owner, VSNode* owned_node, std::string clip_name, std::string host_reason);
  // Of a node whose frames have `clip_info`'s format and at most its size (image_pairs.h). `image_files` names each.
  Impl(std::shared_ptr<const Core> owner, VSNode* owned_node, std::string clip_name, const ClipInfo& clip_info,
       std::vector<std::string> image_files);
  // `from`, of frames that a card's reader makes; takes the node.
  Impl(std::shared_ptr<const Impl> from, VSNode* sink, std::shared_ptr<PicturesInTransit> made);
  // `from`, whose frames come through host memory for this reason.
  Impl(const Impl& from, std::string host_reason);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // What frames are asked of: of host memory, or such as wrap() finds a picture for.
  VSNode* node() const;
  // Waits for one of node()'s; the caller owns it.
  const VSFrame* fetch(std::int64_t number) const;
  // Takes a frame of node()'s.
  Frame wrap(const VSFrame* frame, std::int64_t number) const;
  // Takes a frame of node()'s, or nullptr, that nobody wants.
  void discard(const VSFrame* frame) const;

 private:
  // Made when it is first needed: a second consumer of `source` costs the other a copy on the card and a cache.
  mutable std::mutex download_mutex_;
  mutable Node download_;
};

struct Frame::Impl {
  std::shared_ptr<const Core> core;
  const VSFrame* frame;  // owned
  std::int64_t number;
  std::shared_ptr<const GpuPicture> picture;
  FrameView view;
  Rational duration, sample_aspect;
  bool interlaced;
  std::optional<bool> begins_scene, ends_scene;

  // With a picture the frame carries only properties, and `info` says what the picture is.
  Impl(std::shared_ptr<const Core> owner, const VSFrame* owned_frame, std::int64_t frame_number,
       const ClipInfo* info = nullptr, std::shared_ptr<const GpuPicture> on_card = nullptr);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();
};

// Throws "sr2x.vpy, output 1: frame 37: boom", with the number that was asked for whatever the filter's own text says;
// of an image: "LR/0012.png: boom". Failed, or out_of_memory where a filter says that of itself.
[[noreturn]] void fail_frame(const Clip::Impl& clip, std::int64_t frame, std::string_view text);

void check_frame_number(const Clip& clip, std::int64_t frame);

}  // namespace reelgrad
