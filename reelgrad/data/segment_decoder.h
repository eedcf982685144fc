// Decodes the sampler's schedule ahead of training into the scripts' pools, several segments side by side.
#pragma once
#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/data/sampler.h"
#include "reelgrad/data/script_pool.h"

namespace reelgrad {

// One consumer thread, and as many decoding threads as options.decoders says.
class SegmentDecoder {
 public:
  // `sampler` outlives it. `first_step`: where a resumed run goes on.
  SegmentDecoder(const std::vector<TrainingClip>& clips, const Config& config, const Sampler& sampler,
                 torch::Device device, std::int64_t first_step, const LoaderOptions& options);
  ~SegmentDecoder();

  // What only earlier steps needed may be overwritten from now on.
  void begin_step(std::int64_t step);

  struct Held {
    const ScriptPool& pool;
    int slot;
    std::shared_ptr<c10::Event> stored;  // readers on a card come after it; null: complete
  };
  // Waits until the segment is there; it stays until no step needs it. Throws the error of its frames at the first step
  // that asks for it: at which step a bad frame ends a run does not depend on how far ahead it was found.
  Held wait_for(const Segment& segment);

  // The readers of what wait_for() gave are over with this event.
  void read_until(std::shared_ptr<c10::Event> event);

  // Seconds that wait_for() has waited since the last call.
  double take_wait_seconds();

  bool on_card() const;  // some of the frames

  // One line: frames, segments, the pool's place and size.
  std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
