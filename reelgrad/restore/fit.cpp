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
    if (auto area = fitting(request, keep, lanes)) return Fit{.area = *std::move(area), .lanes = lanes};
  }
  return std::nullopt;
}

using Shape = std::vector<std::int64_t>;

Shape shape_of(const TileFunction& function, int channels, int side) {
  Shape shape{1, channels, side, side};
  if (function.info.window > 1) shape.insert(shape.begin() + 1, function.info.window);
  return shape;
}

// What a call of the whole function takes.
std::int64_t peak_of_call(const TileFunction& function, torch::Device device, const Shape& shape) {
  const PeakMemory peak(device);
  const torch::Tensor input = torch::zeros(shape, torch::dtype(function.type).device(device));
  const torch::Tensor output = function(input);
  return peak.bytes();
}

// What a StagedFunction holds, and its calls take.
std::int64_t peak_of_stages(const TileFunction& function, torch::Device device, const Shape& shape) {
  const PeakMemory peak(device);
  const auto options = torch::dtype(function.type).device(device);
  const torch::Tensor window = torch::zeros(shape, options);
  Shape part_shape = shape;
  part_shape[1] = function.stages->frames;
  const torch::Tensor part = torch::zeros(part_shape, options);
  torch::Tensor features = function.first(part);
  std::vector<torch::Tensor> parts;
  for (int i = 0; i < function.parts(); ++i) parts.push_back(at::zeros_like(features));
  features = torch::Tensor();
  features = function.first(part);
  const torch::Tensor output = function.second(parts, window);
  return peak.bytes();
}

// By what `bytes(side)` says of two sizes.
template <class Bytes>
FunctionMemory memory_by_pixels(const TileFunction& function, int side, const Bytes& bytes) {
  const int multiple = function.info.size_multiple;
  const int small = function.info.fixed_px > 0 ? function.info.fixed_px : round_up(side, multiple);
  const double pixels = static_cast<double>(small) * small;
  // The first call has what is allocated once, too.
  const auto first = static_cast<double>(bytes(small));
  if (function.info.fixed_px > 0) return {0, first / pixels};
  const auto again = static_cast<double>(bytes(small));
  const auto doubled = static_cast<double>(bytes(2 * small));
  const double per_pixel = std::max(0.0, (doubled - again) / (3 * pixels));
  return {std::max(0.0, again - per_pixel * pixels) + std::max(0.0, first - again), per_pixel};
}

std::int64_t bytes_at(const FunctionMemory& memory, std::int64_t pixels) {
  return static_cast<std::int64_t>(memory.fixed + memory.per_pixel * static_cast<double>(pixels));
}

// Fewer would be gone before the next window has them.
int fewest_kept_parts(int parts, int lanes) {
  return parts + lanes - 1;
}

// Whole pictures in stages; nullopt where that does not fit.
std::optional<Fit> in_stages(const FitRequest& request, int most_lanes) {
  if (!request.staged) return std::nullopt;
  AreaPlan area = area_of(request, request.sizes.keep, /*in_bands=*/false);
  if (!area.whole()) return std::nullopt;
  const int parts = request.staged->parts;
  for (int lanes = most_lanes; lanes > 0; --lanes) {
    for (int kept = most_kept_parts(parts, lanes); kept >= fewest_kept_parts(parts, lanes); --kept) {
      if (bytes_needed(request, area, lanes, kept) <= request.budget) return Fit{std::move(area), lanes, kept};
    }
  }
  return std::nullopt;
}

}  // namespace

FunctionMemory measure_memory(const TileFunction& function, torch::Device device, int channels, int side) {
  return memory_by_pixels(function, side,
                          [&](int size) { return peak_of_call(function, device, shape_of(function, channels, size)); });
}

StagedMemory measure_staged_memory(const TileFunction& function, torch::Device device, int channels, int side) {
  const auto options = torch::dtype(function.type).device(device);
  StagedMemory memory{.parts = function.parts()};
  memory.lane = memory_by_pixels(
      function, side, [&](int size) { return peak_of_stages(function, device, shape_of(function, channels, size)); });
  memory.part = memory_by_pixels(function, side, [&](int size) {
    Shape shape = shape_of(function, channels, size);
    shape[1] = function.stages->frames;
    return function.first(torch::zeros(shape, options)).nbytes();
  });
  return memory;
}

int kept_pictures(const NetworkInfo& info, int lanes) {
  return info.window > 1 ? info.window + 2 * lanes : 0;
}

int most_kept_parts(int parts, int lanes) {
  return fewest_kept_parts(parts, lanes) + lanes;
}

std::int64_t bytes_needed(const FitRequest& request, const AreaPlan& area, int lanes, int kept_parts) {
  const std::int64_t pixels = static_cast<std::int64_t>(area.batch) * area.tile_height() * area.tile_width();
  std::int64_t lane = bytes_at(kept_parts > 0 ? request.staged->lane : request.memory, pixels);
  const int width = area.width * area.scale, height = area.height * area.scale;
  if (!area.whole()) {
    lane += static_cast<std::int64_t>(area.window_rows) * area.padded_width * area.scale * request.channels *
            request.outputs * request.element_bytes;
  }
  lane += packed_bytes(request.output, width, std::min(height, area.window_rows)) * request.outputs;
  const int pictures = kept_pictures(request.info, lanes) + lanes * request.info.window;
  const std::int64_t kept = kept_parts > 0 ? bytes_at(request.staged->part, pixels) * kept_parts : 0;
  return lane * lanes + packed_bytes(request.input, area.width, area.height) * pictures + kept;
}

int host_lanes(std::int64_t pixels, int threads) {
  constexpr std::int64_t kMostPixels = 1920 * 1080;
  const std::int64_t most = std::min(kMostHostLanes, threads);
  return static_cast<int>(std::clamp<std::int64_t>(kMostPixels / std::max<std::int64_t>(pixels, 1), 1, most));
}

Fit fit_area(const FitRequest& request) {
  const int wanted = request.streams > 0 ? request.streams : kDefaultLanes;
  if (auto staged = in_stages(request, wanted)) return *std::move(staged);
  if (request.sizes.keep > 0) {
    for (int lanes = wanted; lanes > 0; --lanes) {
      if (auto area = fitting(request, request.sizes.keep, lanes)) return {.area = *std::move(area), .lanes = lanes};
    }
    return {.area = area_of(request, request.sizes.keep, /*in_bands=*/true)};
  }
  for (int lanes = wanted; lanes > 0; --lanes) {
    if (auto area = fitting(request, 0, lanes)) return {.area = *std::move(area), .lanes = lanes};
  }
  for (int lanes = wanted; lanes > 0; --lanes) {
    if (auto fit = tiles_for(request, lanes, lanes > 1 ? kGoodTilePx : 0)) return *std::move(fit);
  }
  return {.area = area_of(request, round_up(kSmallestTilePx, request.info.size_multiple), /*in_bands=*/true)};
}

}  // namespace reelgrad
