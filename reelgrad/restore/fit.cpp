#include "reelgrad/restore/fit.h"

#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/frames/packed_picture.h"
#include "reelgrad/train/peak_memory.h"

namespace reelgrad {
namespace {

constexpr int kFillingPixels = 512 * 512;  // fewer do not keep a large card busy
constexpr int kGoodTilePx = 384;           // below it, another lane gains less than larger tiles would
constexpr int kTileChoicesPx[] = {2048, 1792, 1536, 1280, 1024, 896, 768,
                                  640,  512,  448,  384,  320,  256, 224,
                                  192,  160,  128,  96,   64,   48,  kSmallestTilePx};

std::int64_t packed_bytes(const std::optional<VideoFormat>& format, int width, int height) {
  return format ? static_cast<std::int64_t>(PackedLayout(*format, width, height).bytes) : 0;
}

AreaPlan area_of(const FitRequest& request, int keep, bool in_bands) {
  TileSizes sizes = request.sizes;
  sizes.keep = keep;
  return plan_area(request.info, request.width, request.height, sizes, kFillingPixels, in_bands);
}

// The plan with all output rows held, or where that is too much, in bands.
std::optional<AreaPlan> fitting(const FitRequest& request, int keep, int lanes) {
  for (const bool in_bands : {false, true}) {
    AreaPlan area = area_of(request, keep, in_bands);
    if (bytes_needed(request, area, lanes) <= request.budget) return area;
    if (area.whole()) break;
  }
  return std::nullopt;
}

std::optional<Fit> tiles_for(const FitRequest& request, int lanes, int smallest) {
  const int longest = std::max(request.width, request.height);
  for (const int choice : kTileChoicesPx) {
    const int keep = round_up(choice, request.info.size_multiple);
    if (keep >= longest || keep < smallest) continue;
    if (auto area = fitting(request, keep, lanes)) return Fit{*std::move(area), lanes};
  }
  return std::nullopt;
}

std::int64_t peak_of(const TileFunction& function, torch::Device device, int channels, int side) {
  const PeakMemory peak(device);
  std::vector<std::int64_t> shape{1, channels, side, side};
  if (function.info.window > 1) shape.insert(shape.begin() + 1, function.info.window);
  const torch::Tensor input = torch::zeros(shape, torch::dtype(function.type).device(device));
  const torch::Tensor output = function(input);
  return peak.bytes();
}

}  // namespace

FunctionMemory measure_memory(const TileFunction& function, torch::Device device, int channels, int side) {
  const int multiple = function.info.size_multiple;
  const int small = function.info.fixed_px > 0 ? function.info.fixed_px : round_up(side, multiple);
  const double pixels = static_cast<double>(small) * small;
  // The first call has what is allocated once, too.
  const auto first = static_cast<double>(peak_of(function, device, channels, small));
  if (function.info.fixed_px > 0) return {0, first / pixels};
  const auto again = static_cast<double>(peak_of(function, device, channels, small));
  const auto doubled = static_cast<double>(peak_of(function, device, channels, 2 * small));
  const double per_pixel = std::max(0.0, (doubled - again) / (3 * pixels));
  return {std::max(0.0, again - per_pixel * pixels) + std::max(0.0, first - again), per_pixel};
}

int kept_pictures(const NetworkInfo& info, int lanes) {
  return info.window > 1 ? info.window + 2 * lanes : 0;
}

std::int64_t bytes_needed(const FitRequest& request, const AreaPlan& area, int lanes) {
  const std::int64_t pixels = static_cast<std::int64_t>(area.batch) * area.tile_height() * area.tile_width();
  std::int64_t lane =
      static_cast<std::int64_t>(request.memory.fixed + request.memory.per_pixel * static_cast<double>(pixels));
  const int width = area.width * area.scale, height = area.height * area.scale;
  if (!area.whole()) {
    lane += static_cast<std::int64_t>(area.window_rows) * area.padded_width * area.scale * request.channels *
            request.outputs * request.element_bytes;
  }
  lane += packed_bytes(request.output, width, std::min(height, area.window_rows)) * request.outputs;
  const int pictures = kept_pictures(request.info, lanes) + lanes * request.info.window;
  return lane * lanes + packed_bytes(request.input, area.width, area.height) * pictures;
}

int host_lanes(std::int64_t pixels, int threads) {
  constexpr std::int64_t kMostPixels = 1920 * 1080;
  const std::int64_t most = std::min(kMostHostLanes, threads);
  return static_cast<int>(std::clamp<std::int64_t>(kMostPixels / std::max<std::int64_t>(pixels, 1), 1, most));
}

Fit fit_area(const FitRequest& request) {
  const int wanted = request.streams > 0 ? request.streams : kDefaultLanes;
  if (request.sizes.keep > 0) {
    for (int lanes = wanted; lanes > 0; --lanes) {
      if (auto area = fitting(request, request.sizes.keep, lanes)) return {*std::move(area), lanes};
    }
    return {area_of(request, request.sizes.keep, /*in_bands=*/true), 1};
  }
  for (int lanes = wanted; lanes > 0; --lanes) {
    if (auto area = fitting(request, 0, lanes)) return {*std::move(area), lanes};
  }
  for (int lanes = wanted; lanes > 0; --lanes) {
    if (auto fit = tiles_for(request, lanes, lanes > 1 ? kGoodTilePx : 0)) return *std::move(fit);
  }
  return {area_of(request, round_up(kSmallestTilePx, request.info.size_multiple), /*in_bands=*/true), 1};
}

}  // namespace reelgrad
