#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "reelgrad/restore/captured_function.h"
#include "reelgrad/restore/part_cache.h"

namespace reelgrad {

// A tile function in its network's two stages, for windows of one shape: the first stage runs for the parts of a window
// that the cache does not have, one by one, so that a part's bits do not depend on the others. Used as a CapturedCall.
class StagedFunction {
 public:
  // `window` [1, T, C, H, W]. Records the graphs. Throws out of memory.
  StagedFunction(std::shared_ptr<const TileFunction> function, torch::Device device, const GraphPool& pool,
                 const std::vector<std::int64_t>& window, PartCache& cache);

  const torch::Tensor& input() const { return window_; }  // where the window is to be written
  // What comes of it; to be read on the same stream before the next run. Windows without a name leave nothing behind.
  torch::Tensor run(const std::optional<NamedFrames>& name);
  // After each run: what was queued has run.
  void release() { held_.reset(); }

 private:
  void prepare_second(const torch::Tensor& features);
  torch::Tensor run_first(int part);
  std::vector<std::optional<NamedFrames>> part_names(const std::optional<NamedFrames>& window) const;

  std::shared_ptr<const TileFunction> function_;
  torch::Device device_;
  GraphPool pool_;
  PartCache& cache_;
  torch::Tensor window_, part_;
  std::optional<CapturedCall> first_, second_;
  std::vector<torch::Tensor> parts_;  // the second stage's input
  std::optional<PartCache::Held> held_;
};

}  // namespace reelgrad
