// Batches for training: decodes the sampler's segments ahead of time into frame pools and cuts crops from them.
#pragma once
#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/config/config.h"
#include "reelgrad/data/sampler.h"
#include "reelgrad/frames/frame_pool.h"

namespace reelgrad {

// float32 in [0, 1] on the training device.
struct Batch {
  torch::Tensor input;   // [N, C, H, W], or [N, T, C, H, W] when the window is larger than 1
  torch::Tensor target;  // [N, C, H * scale, W * scale], of the window's middle frame
};

// Where the trainer gets its batches from.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Samples [first, first + count) of step `step` (0-based). Steps are asked for in rising order.
  virtual Batch next(std::int64_t step, int first, int count) = 0;
  // Seconds spent waiting for decoding since the last call.
  virtual double take_wait_seconds() { return 0; }
};

// Frames of one training script, opened and checked. A script with validation frames in its middle gives two.
struct TrainingClip {
  ClipPair pair;
  ClipSpan span;
};

// Opens and checks data.script; the frames of validation.frames are left out of the spans. `open` evaluates a script
// (the engine shows progress with it). Throws usage as training_pair() and Sampler do, naming file and key.
std::vector<TrainingClip> open_training_clips(const Config& config,
                                              const std::function<Script(const ScriptConfig&)>& open);

SamplerConfig sampler_config(const Config& config);

struct LoaderOptions {
  std::optional<FramePool::Place> place;  // not set: the card when the pool takes at most half of its free memory
  std::chrono::duration<double> wait_window{30.0};  // over which waiting for frames is watched
};

// One consumer thread; a thread of its own decodes. The samples, and the bits of the batches, depend on the
// configuration and the step alone: a slow decoder makes next() wait.
class TrainingLoader : public BatchSource {
 public:
  // `first_step`: where a resumed run goes on.
  TrainingLoader(std::vector<TrainingClip> clips, const Config& config, torch::Device device, std::int64_t first_step,
                 const LoaderOptions& options = {});
  ~TrainingLoader() override;

  // Throws a frame's error at the first step that needs the frame's segment. On a card, asynchronous on the current
  // stream.
  Batch next(std::int64_t step, int first, int count) override;
  double take_wait_seconds() override;
  std::string describe() const;  // one line: frames, segments, pool place and size

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
