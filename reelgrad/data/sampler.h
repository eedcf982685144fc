// What is trained on, as a pure function of (seed, step): no state, nothing to save. No decoding here.
#pragma once
#include <cstdint>
#include <vector>

#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// The frames of one script that training may use.
struct ClipSpan {
  int script = 0;               // index into data.script
  std::int64_t begin = 0, end = 0;  // frames
  double weight = 1;            // share of the samples
  int width = 0, height = 0;    // of the input clip, pixels
};

struct SamplerConfig {
  std::uint64_t seed = 1;
  int batch = 16;         // samples a step, over all micro-batches
  int crop_px = 64;
  int window = 1;
  int frame_step = 1;
  int segment_frames = 16;
  int pool_frames = 256;
  int reuse = 16;
  bool augment = true;
};

// A run of frames that is decoded in one go.
struct Segment {
  std::int64_t index = 0;  // position in the schedule, 0, 1, 2, …
  int script = 0;
  std::int64_t begin = 0;
  int frames = 0;
  bool operator==(const Segment&) const = default;
};

struct Sample {
  std::int64_t segment = 0;  // Segment::index
  std::int64_t frame = 0;    // first frame of the window, in the clip's numbering
  int x = 0, y = 0;          // of the input crop, pixels
  Orientation orientation;
  bool operator==(const Sample&) const = default;
};

class Sampler {
 public:
  // Throws usage when a span is shorter than the window or smaller than the crop, naming both values.
  Sampler(std::vector<ClipSpan> spans, SamplerConfig config);

  // The i-th entry of the schedule. Segments are drawn without replacement within an epoch of their script; scripts
  // take turns by weight.
  Segment segment(std::int64_t index) const;

  // Segments that may be drawn at `step`: indices [first, first + resident_segments()).
  std::int64_t first_resident(std::int64_t step) const;
  int resident_segments() const;

  // Sample `i` of `config.batch` at `step` on `rank`.
  Sample sample(std::int64_t step, int i, int rank = 0) const;

 private:
  std::vector<ClipSpan> spans_;
  SamplerConfig config_;
};

}  // namespace reelgrad
