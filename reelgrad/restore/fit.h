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

// Runs it on the current stream, on tiles with `channels` of about `side` pixels and twice that.
FunctionMemory measure_memory(const TileFunction& function, torch::Device device, int channels, int side);

struct FitRequest {
  NetworkInfo info;
  int width = 0, height = 0;
  TileSizes sizes;  // keep 0: chosen
  FunctionMemory memory;
  int channels = 3, outputs = 1, element_bytes = 2;  // of the restored tensors
  std::optional<VideoFormat> input, output;
  std::int64_t budget = 0;  // bytes, of all lanes
  int streams = 0;          // 0: chosen
};

struct Fit {
  AreaPlan area;
  int lanes = 1;
};

// Bytes that `lanes` lanes take for pictures gone through like this, weights apart.
std::int64_t bytes_needed(const FitRequest& request, const AreaPlan& area, int lanes);

// Whole pictures where they fit, else the largest tiles; fewer lanes than asked for rather than small tiles. Where
// nothing fits, the smallest.
Fit fit_area(const FitRequest& request);

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
