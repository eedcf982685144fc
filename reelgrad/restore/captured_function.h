#pragma once
#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "reelgrad/restore/tile_function.h"
#include "reelgrad/train/captured_work.h"

namespace reelgrad {

// What torch's allocator keeps of the cards' memory goes back to the system; not while one of ours is captured, which
// forbids that.
void return_unused_memory();

// Where a lane's graphs, which run one after the other, have their memory; none: no graphs are wanted.
using GraphPool = std::optional<at::cuda::MempoolId_t>;
GraphPool make_graph_pool(torch::Device device, bool capture);

// Zeros [.., C, H, W], channels_last where there are four sides: an input that stays where it is.
torch::Tensor make_input(const std::vector<std::int64_t>& shape, torch::ScalarType type, torch::Device device);

// Work on tensors that stay where they are, with a pool as a CUDA graph. Used by one thread at a time, always with the
// same stream current, which is not the default one, and in inference mode.
class CapturedCall {
 public:
  using Work = std::function<torch::Tensor()>;
  // Records the graph; what cannot be recorded is run op by op, said once. Throws out of memory.
  CapturedCall(Work work, torch::Device device, const GraphPool& pool);

  // What the work gives; to be read on the same stream before the next run.
  torch::Tensor run();

 private:
  void capture(torch::Device device, const at::cuda::MempoolId_t& pool);

  Work work_;
  torch::Tensor output_;                 // the graph's
  std::unique_ptr<CapturedWork> graph_;  // null: op by op
};

// A tile function with inputs that stay where they are, and a call for each shape of them. Used as a CapturedCall.
class CapturedFunction {
 public:
  CapturedFunction(std::shared_ptr<const TileFunction> function, torch::Device device, GraphPool pool);

  using Shape = std::vector<std::int64_t>;

  // Allocates the input of this shape, and records the graph. Throws out of memory.
  void prepare(const Shape& shape);

  // Where the tiles are to be written; prepared if it was not. Stays.
  const torch::Tensor& input(const Shape& shape) { return slot(shape).input; }
  // What the function makes of them; to be read on the same stream before the next run.
  torch::Tensor run(const Shape& shape) { return slot(shape).call.run(); }

 private:
  struct Slot {
    torch::Tensor input;
    CapturedCall call;
  };
  Slot& slot(const Shape& shape);

  std::shared_ptr<const TileFunction> function_;
  torch::Device device_;
  GraphPool pool_;
  std::map<Shape, Slot> slots_;
};

}  // namespace reelgrad
