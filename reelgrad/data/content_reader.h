// What a segment's frames are looked at for, wherever they lie: repetitions and scene cuts.
#pragma once
#include <torch/types.h>

#include <memory>

#include "reelgrad/clip/frame.h"
#include "reelgrad/data/segment_content.h"

namespace reelgrad {

struct ContentOptions {
  SceneCuts scene_cuts = SceneCuts::automatic;
  bool skip_duplicates = true;
};

// Reads one segment. One thread.
class ContentReader {
 public:
  // `frames`: of the segment. `device`: where frames that are not in host memory lie.
  ContentReader(int frames, const ContentOptions& options, torch::Device device);
  ~ContentReader();

  // The segment's pairs in their order.
  void add(const Frame& target, const Frame& input);

  // After the last one. Waits for the card.
  SegmentContent content();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
