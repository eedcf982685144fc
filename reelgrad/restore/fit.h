// Tiles and lanes that fit a card's memory: arithmetic with what was measured.
#pragma once
#include <cstdint>
#include <optional>

#include "reelgrad/clip/video_format.h"
#include "reelgrad/restore/area_plan.h"
#include "reelgrad/restore/tile_function.h"

namespace reelgrad {

// Bytes that a tile function's call takes at most, its input and output included, by the pixels of all its tiles.
struct FunctionMemory {
  double fixed = 0, per_pixel = 0;
};

// Of a network that works in two stages: all that a lane holds for it, and what is kept of one part.
struct StagedMemory {
  FunctionMemory lane, part;
  int parts = 1;  // of a window
};

// Runs it on the current stream, on tiles with `channels` of about `side` pixels and twice that.
FunctionMemory measure_memory(const TileFunction& function, torch::Device device, int channels, int side);
StagedMemory measure_staged_memory(const TileFunction& function, torch::Device device, int channels, int side);

struct FitRequest {
  NetworkInfo info;
  int width = 0, height = 0;
  TileSizes sizes;  // keep 0: chosen
  FunctionMemory memory;
  std::optional<StagedMemory> staged;                // of a network that may work in stages
  int channels = 3, outputs = 1, element_bytes = 2;  // of the restored tensors
  std::optional<VideoFormat> input, output;
  std::int64_t budget = 0;  // bytes, of all lanes
  int streams = 0;          // 0: chosen
};

struct Fit {
  AreaPlan area;
  int lanes = 1;
  int kept_parts = 0;  // of windows, for a network that works in stages; 0: it does not
};

// Bytes that `lanes` lanes take for pictures gone through like this, weights apart; in stages where parts are kept.
std::int64_t bytes_needed(const FitRequest& request, const AreaPlan& area, int lanes, int kept_parts = 0);

// Whole pictures where they fit, in stages where that fits too, else the largest tiles; fewer lanes than asked for
// rather than no stages or small tiles. Where nothing fits, the smallest.
Fit fit_area(const FitRequest& request);

// Parts of windows that are kept where memory allows: those that `lanes` windows in a row have, and as many again as
// there are lanes, since windows do not come quite in their order.
int most_kept_parts(int parts, int lanes);

// Pictures of the clip that are kept on the card.
int kept_pictures(const NetworkInfo& info, int lanes);

inline constexpr int kSmallestTilePx = 32;  // smaller ones would spend nearly all their work on what is around them
inline constexpr int kDefaultLanes = 3;     // one uploads, one computes, one downloads
inline constexpr int kMostHostLanes = 4;

// On the CPU, whose memory is not counted, of pictures (or tiles) of so many pixels: several at a time, each on its
// share of the threads, which wait less for one another than when they share a picture; together no more pixels than
// one of 1920x1080 has.
int host_lanes(std::int64_t pixels, int threads);

}  // namespace reelgrad
