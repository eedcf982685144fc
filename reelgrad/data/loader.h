// Batches for training: decodes the sampler's segments ahead of time into frame pools and cuts crops from them.
#pragma once
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/config/config.h"
#include "reelgrad/data/sampler.h"

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

// One training script, opened and checked.
struct TrainingClip {
  ClipPair pair;
  ClipSpan span;
};

// Opens and checks data.script; `validation_frames` of each are left out of the spans. `open` evaluates a script (the
// engine shows progress with it). Throws usage as training_pair() and Sampler do, naming file and key.
std::vector<TrainingClip> open_training_clips(const Config& config,
                                              const std::function<Script(const ScriptConfig&)>& open);

class TrainingLoader : public BatchSource {
 public:
  // `first_step`: where a resumed run goes on.
  TrainingLoader(std::vector<TrainingClip> clips, const Config& config, torch::Device device, std::int64_t first_step);
  ~TrainingLoader() override;

  Batch next(std::int64_t step, int first, int count) override;
  double take_wait_seconds() override;
  std::string describe() const;  // one line: frames, segments, pool place and size

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
