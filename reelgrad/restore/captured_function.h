#pragma once
#include <torch/types.h>

#include <map>
#include <memory>
#include <vector>

#include "reelgrad/restore/tile_function.h"
#include "reelgrad/train/captured_work.h"

namespace reelgrad {

// A tile function with inputs that stay where they are, and on a card a CUDA graph for each shape of them. Used by one
// thread at a time, always with the same stream current, which is not the default one, and in inference mode.
class CapturedFunction {
 public:
  // `capture`: whether a card's graphs are wanted.
  CapturedFunction(std::shared_ptr<const TileFunction> function, torch::Device device, bool capture);

  using Shape = std::vector<std::int64_t>;

  // Allocates the input of this shape, and on a card records the graph; what cannot be recorded is run op by op, said
  // once. Throws out of memory.
  void prepare(const Shape& shape);

  // Where the tiles are to be written; prepared if it was not. Stays.
  const torch::Tensor& input(const Shape& shape) { return slot(shape).input; }
  // What the function makes of them; to be read on the same stream before the next run.
  torch::Tensor run(const Shape& shape);

 private:
  struct Slot {
    torch::Tensor input, output;
    std::unique_ptr<CapturedWork> graph;  // null: op by op
  };
  Slot& slot(const Shape& shape);
  void capture(Slot& slot);

  std::shared_ptr<const TileFunction> function_;
  torch::Device device_;
  bool capture_;
  std::map<Shape, Slot> slots_;
  at::cuda::MempoolId_t pool_{};  // of all graphs, which run one after the other
};

}  // namespace reelgrad
