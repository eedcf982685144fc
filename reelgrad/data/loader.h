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
#include "reelgrad/clip/image_pairs.h"
#include "reelgrad/config/config.h"
#include "reelgrad/data/sampler.h"
#include "reelgrad/frames/frame_pool.h"

namespace reelgrad {

// float32 in [0, 1] on the training device.
struct Batch {
  torch::Tensor input;   // [N, C, H, W], or [N, T, C, H, W] when the window is larger than 1
  torch::Tensor target;  // [N, C, H * scale, W * scale], of the window's middle frame
  // For samples of F frames (sample_frames()): input [N, T + F - 1, C, H, W], the windows of F neighbours
  // data.frame_step apart, and target [N, F, C, H * scale, W * scale], of all of them.
};

// Batches of one size at a fixed place on a card, for steps that are captured in a CUDA graph once: what to cut is sent
// for each batch, the launches that cut are always the same.
class ReplayedBatch {
 public:
  virtual ~ReplayedBatch() = default;
  virtual const Batch& batch() const = 0;  // what cut() fills
  // Takes samples [first, first + size) of step `step`: waits for their frames and sends what cut() is to read. On the
  // current stream, and not to be captured.
  virtual void prepare(std::int64_t step, int first) = 0;
  // Launches on the current stream; may be captured.
  virtual void cut() = 0;
  // After cut() or a replay of it: when the current stream gets here, the frames may be overwritten.
  virtual void end_of_cut() = 0;
};

// Where the trainer gets its batches from.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Samples [first, first + count) of step `step` (0-based). Steps are asked for in rising order, the last one also
  // again.
  virtual Batch next(std::int64_t step, int first, int count) = 0;
  // Batches of `count` samples for a captured step; the source outlives them. nullptr: next() is all there is.
  virtual std::unique_ptr<ReplayedBatch> replayed(int) { return nullptr; }
  // Whether it keeps frames on the card, and moving them to host memory; the samples stay the same.
  virtual bool on_card() const { return false; }
  virtual void leave_card(std::int64_t /*next_step*/) {}
  // Seconds spent waiting for decoding since the last call.
  virtual double take_wait_seconds() { return 0; }
};

// Frames of one training script, opened and checked. A script with validation frames in its middle gives two. Or the
// images of two folders, in an order drawn from the seed.
struct TrainingClip {
  ClipPair pair;
  ClipSpan span;
  std::string name;                  // of the script's file, or the folder of targets
  std::optional<ImagePairs> images;  // of data.pairs, those of validation included
};

// Opens and checks data.script and data.pairs; what validation.frames names is left out of the spans. `open` evaluates
// a script, `for_images` opens images (the engine shows progress with them). Throws usage as training_pair(),
// ImagePairs and Sampler do, naming file and key.
std::vector<TrainingClip> open_training_clips(const Config& config,
                                              const std::function<Script(const ScriptConfig&)>& open,
                                              const OpenOptions& for_images = {});

// VapourSynth's cache in training: a frame is asked for once a turn, so that only filters' neighbours gain by it.
inline constexpr std::int64_t kTrainingCacheBytes = std::int64_t{512} << 20;

// The clips with those frames that VapourSynth makes on this card left there (Clip::on_gpu); nothing for the CPU.
void keep_on_card(std::vector<TrainingClip>& clips, torch::Device device);

SamplerConfig sampler_config(const Config& config);

struct LoaderOptions {
  std::optional<FramePool::Place> place;  // not set: the card when the pool takes at most half of its free memory
  std::optional<std::size_t> free_bytes;  // of the card, for that choice; not set: asked of the card
  std::chrono::duration<double> wait_window{30.0};  // over which waiting for frames is watched
  // Of the inputs, or ChannelsLast (where the window is 1).
  torch::MemoryFormat layout = torch::MemoryFormat::Contiguous;
  int decoders = 0;  // threads, each with a segment at a time; 0: two a script, up to 8
};

// One consumer thread; threads of its own decode. The samples depend on the configuration and the step
// alone, and so do the bits of the batches on one kind of device: a slow decoder makes next() wait.
class TrainingLoader : public BatchSource {
 public:
  // `first_step`: where a resumed run goes on.
  TrainingLoader(std::vector<TrainingClip> clips, const Config& config, torch::Device device, std::int64_t first_step,
                 const LoaderOptions& options = {});
  ~TrainingLoader() override;

  // Throws a frame's error at the first step that needs the frame's segment. On a card, asynchronous on the current
  // stream.
  Batch next(std::int64_t step, int first, int count) override;
  std::unique_ptr<ReplayedBatch> replayed(int count) override;
  bool on_card() const override;
  void leave_card(std::int64_t next_step) override;
  double take_wait_seconds() override;
  std::string describe() const;  // one line: frames, segments, pool place and size

 private:
  struct Impl;
  class CardBatch;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
