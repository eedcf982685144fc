// What Clip and Frame hold; for the files of this folder and their tests.
#pragma once
#include <memory>
#include <string>

#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/core.h"
#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/vs_convert.h"

namespace reelgrad {

struct Clip::Impl {
  std::shared_ptr<const Core> core;  // destroyed last
  VSNode* node;                      // owned
  ClipInfo info;
  std::string name;

  // Takes the node. Throws usage when its format or size is variable or not supported.
  Impl(std::shared_ptr<const Core> owner, VSNode* owned_node, std::string clip_name);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { core->api()->freeNode(node); }
};

struct Frame::Impl {
  std::shared_ptr<const Core> core;
  const VSFrame* frame;  // owned
  std::int64_t number;
  FrameView view;
  Rational duration, sample_aspect;
  bool interlaced, scene_cut_before;

  Impl(std::shared_ptr<const Core> owner, const VSFrame* owned_frame, std::int64_t frame_number);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();
};

// "sr2x.vpy, output 1: frame 37: boom", with the number that was asked for whatever the filter's own text says.
std::string frame_error(const std::string& clip_name, std::int64_t frame, std::string_view text);

void check_frame_number(const Clip& clip, std::int64_t frame);

}  // namespace reelgrad
