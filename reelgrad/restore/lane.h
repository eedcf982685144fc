#pragma once
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>

#include <functional>
#include <memory>
#include <optional>

#include "reelgrad/nn/host_threads.h"
#include "reelgrad/restore/area_plan.h"
#include "reelgrad/restore/captured_function.h"
#include "reelgrad/restore/card_stream.h"
#include "reelgrad/restore/row_sink.h"
#include "reelgrad/restore/row_window.h"
#include "reelgrad/restore/staged_function.h"
#include "reelgrad/restore/tile_source.h"

namespace reelgrad {

// What restores one picture (or one window's) at a time: on a card a stream with its graphs and memory. Used by one
// thread at a time.
class Lane {
 public:
  // `host_threads`: those that a picture is spread over on the CPU.
  Lane(std::shared_ptr<const TileFunction> function, torch::Device device, bool capture, int host_threads);
  ~Lane();  // waits for the card

  // For pictures that are gone through like this, of tiles with `channels`. `output`: the format to write, of a card.
  // `parts`: of whole pictures whose network is to work in stages, else null; it outlives the lane.
  void prepare(const AreaPlan& plan, int channels, const std::optional<VideoFormat>& output, PartCache* parts);

  // While it lives the calling thread works on the lane's stream or with its threads, without gradients; at its end
  // what was queued has run. The thread's own card and context come back.
  class Turn {
   public:
    explicit Turn(Lane& lane);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

   private:
    Lane& lane_;
    std::optional<c10::cuda::CUDAStreamGuard> stream_;
    std::optional<HostThreads> threads_;
    c10::InferenceMode inference_;
  };

  // During a turn, once. On a card it only queues. `name`: of what the source holds, where it may be known again.
  // `stop_requested` (may be empty) is polled before every batch of tiles: where it says so, interrupted is thrown.
  using StopRequested = std::function<bool()>;
  void restore(const TileSource& source, RowSink& sink, const std::optional<NamedFrames>& name = std::nullopt,
               const StopRequested& stop_requested = {});

  CardDownloads& downloads() { return *downloads_; }

 private:
  using Shape = CapturedFunction::Shape;
  Shape input_shape(int tiles) const;
  void read_tile(const TileSource& source, const TileSpan& row, const TileSpan& column, const torch::Tensor& into);
  void restore_whole(const TileSource& source, RowSink& sink, const std::optional<NamedFrames>& name);
  void restore_row(const TileSource& source, const TileSpan& row, const StopRequested& stop_requested);

  std::shared_ptr<const TileFunction> function_;
  torch::Device device_;
  std::optional<CardStream> stream_;  // of a card
  int host_threads_;
  GraphPool pool_;
  CapturedFunction captured_;
  std::optional<StagedFunction> staged_;
  AreaPlan plan_;
  int channels_ = 0;
  std::optional<RowWindow> window_;  // of pictures in tiles
  std::unique_ptr<CardDownloads> downloads_;
};

}  // namespace reelgrad
