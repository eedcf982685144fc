// What is trained on, as a pure function of (seed, step): no state, nothing to save. No decoding here: a sample's
// frames depend on where its segment's scenes begin, so that it carries the draw they are chosen by.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// A run of frames of one script that training may use. A script can have several (validation frames cut out of its
// middle); they share its weight.
struct ClipSpan {
  int script = 0;                   // index into data.script, after those into data.pairs
  std::int64_t begin = 0, end = 0;  // frames
  double weight = 1;                // the script's share of the samples
  int width = 0, height = 0;        // of the input clip, pixels
  std::string name;                 // of the clip, for messages
  // Of each of the clip's frames, pixels, at most width and height; null: all are of that size.
  std::shared_ptr<const std::vector<PictureSize>> sizes = {};
};

struct SamplerConfig {
  std::uint64_t seed = 1;
  int batch = 16;  // samples a step, over all micro-batches
  int crop_px = 64;
  int window = 1;
  int frame_step = 1;
  int targets = 1;  // of a sample, frame_step apart: sample_frames()
  int segment_frames = 16;
  int pool_frames = 256;
  int reuse = 16;
  bool augment = true;

  // Of a sample, frame_step apart: one window, or those of all targets overlapping. The targets are the middle ones.
  int input_frames() const { return window + targets - 1; }
  // Crops that are cut for a sample.
  std::size_t pictures() const { return static_cast<std::size_t>(input_frames() + targets); }
  // Frames from the first to the last of these, both included.
  int window_reach() const { return (input_frames() - 1) * frame_step + 1; }
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
  std::uint32_t draw = 0;    // place_window() (segment_content.h) turns it into frames, once the segment is decoded
  std::int64_t frame = 0;    // first frame of the window where the segment has no cuts and nothing repeats
  int x = 0, y = 0;          // of the input crop, pixels
  Orientation orientation;
  bool operator==(const Sample&) const = default;
};

// Thread-safe.
class Sampler {
 public:
  // Throws usage when a span is shorter than the window or smaller than the crop, naming both values.
  Sampler(std::vector<ClipSpan> spans, SamplerConfig config);
  Sampler(Sampler&&) noexcept;
  ~Sampler();

  // The i-th entry of the schedule. Segments are drawn without replacement within an epoch of their script; scripts
  // take turns by weight.
  Segment segment(std::int64_t index) const;

  // Segments that may be drawn at `step`: indices [first, first + resident_segments()).
  std::int64_t first_resident(std::int64_t step) const;
  int resident_segments() const;

  // Sample `i` of `config.batch` at `step` on `rank`.
  Sample sample(std::int64_t step, int i, int rank = 0) const;

  const SamplerConfig& config() const { return config_; }

  // Different segments that the schedule draws from `script`.
  int distinct_segments(int script) const;

  // No `length` consecutive entries of the schedule hold more different segments of `script` than this.
  int most_segments(int script, int length) const;

 private:
  struct Track;  // one script's segments
  struct Cache;
  struct Turn {
    int track = 0;
    std::int64_t ordinal = 0;
  };
  Turn turn(std::int64_t index) const;
  const Track& track_of(int script) const;

  SamplerConfig config_;
  std::vector<Track> tracks_;
  double total_weight_ = 0;
  std::unique_ptr<Cache> cache_;
};

// Throws usage when `span` cannot give a single sample, naming the clip, the key and both values.
void check_span(const ClipSpan& span, const SamplerConfig& config);

}  // namespace reelgrad
