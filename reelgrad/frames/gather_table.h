#pragma once
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <span>

#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// The jobs of a batch on a card, sent anew for each batch, so that cutting its crops can be captured in a CUDA graph
// once. One thread. Needs a card.
class GatherTable {
 public:
  // Of so many jobs in every batch.
  GatherTable(std::size_t jobs, torch::Device card);
  ~GatherTable();

  // Asynchronous on the current stream, and not to be captured. The crops' sizes are those of the first call. Waits,
  // without stopping the card, when kBatchesAhead earlier tables have not arrived yet.
  static constexpr int kBatchesAhead = 8;
  void send(std::span<const SpecifiedJob> jobs);

  // Cuts the crops that were sent last: one launch on the current stream.
  void launch() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
