#include "reelgrad/restore/preparation.h"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/kernels/conversion.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/restore/card_stream.h"
#include "reelgrad/restore/color_plan.h"
#include "reelgrad/restore/fit.h"
#include "reelgrad/restore/overlap_measure.h"
#include "reelgrad/train/out_of_memory.h"

namespace reelgrad {
namespace {

constexpr int kBicubicReach = 2;
constexpr int kWholePictureOverlap = 64;  // of networks that no overlap suffices
constexpr double kPlannedShare = 0.92;    // of a budget: the allocator rounds up
constexpr int kMeasuredPx = 192;          // the side of tiles that memory is measured on
constexpr std::int64_t kLeftFree = std::int64_t{256} << 20;

// Which restores colours beside luma does not depend on what a frame says.
ColorPlan colors_for(const Setup& setup, const Wanted& wanted) {
  return plan_colors(setup.spec.color, setup.info.scale, *wanted.input, {}, {}, *wanted.output,
                     wanted.height * setup.info.scale);
}

void check_size(const VideoFormat& format, int width, int height, const char* what) {
  const int across = 1 << format.subsampling_w, down = 1 << format.subsampling_h;
  if (width % across == 0 && height % down == 0) return;
  fail_usage(fmt::format("{} of {}x{} cannot be {}, whose sides are multiples of {} and {}", what, width, height,
                         format.name(), across, down));
}

void check_formats(const Setup& setup, const Wanted& wanted) {
  if (!wanted.input) return;
  const int scale = setup.info.scale;
  check_size(*wanted.input, wanted.width, wanted.height, "an input");
  check_size(*wanted.output, wanted.width * scale, wanted.height * scale, "an output");
  const ColorPlan colors = colors_for(setup, wanted);
  make_conversion(*wanted.input, colors.read, colors.picture);
  make_conversion(*wanted.output, colors.write, colors.picture);
}

// Tensors of the caller's have no number by which a part of a window could be known again.
bool may_work_in_stages(const Setup& setup, const Wanted& wanted, const Limits& limits) {
  return wanted.input && setup.info.window > 1 && !setup.options.ensemble && !limits.no_stages;
}

std::shared_ptr<const TileFunction> make_function(const Setup& setup, const Wanted& wanted, const Limits& limits) {
  TileFunction function{.network = setup.network,
                        .info = setup.info,
                        .type = setup.type,
                        .strength = setup.options.strength,
                        .ensemble = setup.options.ensemble};
  function.enlarges_chroma = wanted.input && colors_for(setup, wanted).enlarges_chroma;
  if (may_work_in_stages(setup, wanted, limits)) function.stages = setup.network->window_stages();
  if (function.stages && (function.stages->frames < 1 || function.stages->frames > setup.info.window)) {
    fail(fmt::format("window_stages() of {}: {} frames, allowed: 1 to {}, its window", setup.spec.arch,
                     function.stages->frames, setup.info.window));
  }
  return std::make_shared<TileFunction>(function);
}

// On the network's device, in float32. Nullopt where it cannot be told, or memory does not suffice for that.
std::optional<int> try_to_measure(const Setup& setup) {
  const torch::Device device = setup.options.device;
  if (setup.type != torch::kFloat32) place_network(*setup.network, device, torch::kFloat32);
  std::optional<int> overlap;
  try {
    overlap = measure_overlap(*setup.network);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error, device)) throw;
  }
  if (setup.type != torch::kFloat32) place_network(*setup.network, device, setup.type);
  return overlap;
}

int measured_overlap(Setup& setup) {
  if (!setup.measured_overlap) setup.measured_overlap = known_overlap(setup.weights_hash);
  if (setup.measured_overlap) return *setup.measured_overlap;
  setup.measured_overlap = try_to_measure(setup);
  if (setup.measured_overlap) {
    keep_overlap(setup.weights_hash, *setup.measured_overlap);
  } else {
    const int enough = setup.info.whole_picture ? kWholePictureOverlap : setup.info.receptive_radius_px;
    setup.measured_overlap = round_up(enough, setup.info.size_multiple);
  }
  return *setup.measured_overlap;
}

// `measure(side)` of as large tiles as memory allows.
template <class Measure>
auto measured_memory(torch::Device device, const Measure& measure) {
  for (int side = kMeasuredPx;; side /= 2) {
    try {
      return measure(side);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error, device) || side <= kSmallestTilePx) throw;
    }
  }
}

// What tiles of this function must share; `function` also enlarges by bicubic where it blends or keeps chroma.
TileSizes tile_sizes(Setup& setup, const TileFunction& function, int keep) {
  const NetworkInfo& info = setup.info;
  const bool enlarges = info.scale > 1 && (function.strength != 1 || function.enlarges_chroma);
  const int radius = std::max(info.receptive_radius_px, enlarges ? kBicubicReach : 0);
  const int asked = setup.options.overlap_px;
  int overlap = asked;
  // Nothing can be measured on a network that takes one size.
  if (asked == RestoreOptions::kExact || (asked < 0 && info.fixed_px > 0))
    overlap = info.receptive_radius_px;
  else if (asked == RestoreOptions::kMeasured)
    overlap = measured_overlap(setup);
  if (asked < 0 && enlarges) overlap = std::max(overlap, kBicubicReach);
  const int multiple = info.fixed_px > 0 ? 1 : info.size_multiple;
  if (info.fixed_px > 0) overlap = std::min(overlap, info.fixed_px / 4);
  overlap = round_up(overlap, multiple);
  const int fade = info.whole_picture ? fade_of(overlap, overlap + 1) : fade_of(overlap, radius);
  return {.keep = round_up(keep, multiple), .overlap = overlap, .fade = fade};
}

std::int64_t budget_of(const Setup& setup, std::int64_t less) {
  std::int64_t weights = 0;
  for (const auto& [name, tensor] : state_dict(*setup.network)) weights += static_cast<std::int64_t>(tensor.nbytes());
  if (setup.options.vram_mb > 0) {
    const std::int64_t all = (setup.options.vram_mb << 20) - weights - less;
    return static_cast<std::int64_t>(static_cast<double>(all) * kPlannedShare);
  }
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  return static_cast<std::int64_t>(static_cast<double>(free) * kPlannedShare) - kLeftFree - less;
}

int lanes_asked_for(const Setup& setup, const Limits& limits) {
  return limits.lanes > 0 ? limits.lanes : setup.options.streams;
}

// On the CPU, whose memory is not counted: all at once, or the tiles asked for.
Fit fit_on_cpu(Setup& setup, const TileFunction& function, const Wanted& wanted, int keep, const Limits& limits) {
  const auto plan = [&](const TileSizes& sizes) {
    return plan_area(setup.info, wanted.width, wanted.height, sizes, /*filling_pixels=*/0, /*in_bands=*/false);
  };
  AreaPlan area = plan({.keep = round_up(keep, setup.info.size_multiple)});
  if (!area.whole()) area = plan(tile_sizes(setup, function, keep));
  const int asked = lanes_asked_for(setup, limits);
  const std::int64_t pixels = std::int64_t{area.batch} * area.tile_height() * area.tile_width();
  const int lanes = asked > 0 ? asked : host_lanes(pixels, at::get_num_threads());
  const int kept_parts = area.whole() && function.stages ? most_kept_parts(function.parts(), lanes) : 0;
  return {std::move(area), lanes, kept_parts};
}

Fit fit_on_card(Setup& setup, const TileFunction& function, const Wanted& wanted, int keep, const Limits& limits,
                std::int64_t less) {
  const torch::Device device = setup.options.device;
  const int channels = function.channels() + (wanted.noise_level ? 1 : 0);
  FitRequest request{.info = setup.info,
                     .width = wanted.width,
                     .height = wanted.height,
                     .sizes = {.keep = round_up(keep, setup.info.size_multiple)},
                     .channels = function.channels(),
                     .outputs = function.outputs(),
                     .element_bytes = static_cast<int>(c10::elementSize(setup.type)),
                     .input = wanted.input,
                     .output = wanted.output,
                     .streams = lanes_asked_for(setup, limits)};
  {
    const CardStream stream(device);
    const c10::cuda::CUDAStreamGuard guard(stream.get());
    const c10::InferenceMode inference;
    request.memory =
        measured_memory(device, [&](int side) { return measure_memory(function, device, channels, side); });
    if (function.stages) {
      request.staged =
          measured_memory(device, [&](int side) { return measure_staged_memory(function, device, channels, side); });
    }
  }
  return_unused_memory();
  request.budget = budget_of(setup, less);
  Fit fit = fit_area(request);
  if (fit.area.whole()) return fit;
  request.sizes = tile_sizes(setup, function, keep);
  return fit_area(request);
}

void warn_of_tiles(const Setup& setup, const AreaPlan& area) {
  if (area.whole() || !setup.info.whole_picture) return;
  log::warn_once("restore: whole-picture network",
                 fmt::format("{} averages over the whole picture, which tiles cannot: they may differ in brightness. "
                             "With memory enough, larger tiles (--tile) differ less",
                             setup.spec.arch));
}

std::unique_ptr<Prepared> build(Setup& setup, const Wanted& wanted, const Limits& limits, std::int64_t less) {
  const torch::Device device = setup.options.device;
  const std::shared_ptr<const TileFunction> function = make_function(setup, wanted, limits);
  const int keep = limits.tile_px > 0 ? limits.tile_px : setup.options.tile_px;
  Fit fit = device.is_cuda() ? fit_on_card(setup, *function, wanted, keep, limits, less)
                             : fit_on_cpu(setup, *function, wanted, keep, limits);
  warn_of_tiles(setup, fit.area);
  auto prepared = std::make_unique<Prepared>();
  prepared->wanted = wanted;
  prepared->area = std::move(fit.area);
  if (device.is_cuda() && wanted.input) {
    prepared->frames = std::make_unique<FrameCache>(*wanted.input, wanted.width, wanted.height, device,
                                                    kept_pictures(setup.info, fit.lanes), fit.lanes + 1);
  }
  if (fit.kept_parts > 0) prepared->parts = std::make_unique<PartCache>(fit.kept_parts, device);
  prepared->lanes = std::make_unique<Lanes>(fit.lanes, function, device, setup.options.capture);
  const int channels = function->channels() + (wanted.noise_level ? 1 : 0);
  prepared->lanes->each(
      [&](Lane& lane) { lane.prepare(prepared->area, channels, wanted.output, prepared->parts.get()); });
  return prepared;
}

}  // namespace

void check_options(const RestoreOptions& options, const NetworkInfo& info, const std::string& arch) {
  if (options.tile_px < 0) fail_usage(fmt::format("tile: {} (allowed: 0 or more pixels)", options.tile_px));
  if (options.overlap_px < RestoreOptions::kExact)
    fail_usage(fmt::format("overlap: {} (allowed: 0 or more pixels)", options.overlap_px));
  if (options.streams < 0 || options.streams > 32)
    fail_usage(fmt::format("streams: {} (allowed: 0 to 32)", options.streams));
  if (options.vram_mb < 0) fail_usage(fmt::format("vram_mb: {} (allowed: 0 or more MiB)", options.vram_mb));
  if (!(options.strength >= 0 && options.strength <= 1))
    fail_usage(fmt::format("strength: {} (allowed: 0 to 1)", options.strength));
  if (!options.sigma) return;
  if (!info.noise_level) fail_usage(fmt::format("sigma: {} takes no noise level", arch));
  if (!(*options.sigma >= 0 && *options.sigma <= 255))
    fail_usage(fmt::format("sigma: {} (allowed: 0 to 255, in 8-bit codes)", *options.sigma));
}

std::optional<double> own_sigma(const NetworkSpec& spec) {
  if (const auto found = spec.options.find("sigma"); found != spec.options.end()) return std::stod(found->second);
  const ArchitectureEntry* entry = find_architecture(spec.arch);
  if (entry == nullptr) return std::nullopt;
  for (const ArchitectureOption& option : entry->options) {
    if (option.name == "sigma") return std::stod(std::string(option.default_value));
  }
  return std::nullopt;
}

void place_network(Network& network, torch::Device device, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  const auto place = [&](torch::Tensor tensor) {
    tensor.set_data(tensor.is_floating_point() ? tensor.to(device, type) : tensor.to(device));
  };
  for (const torch::Tensor& tensor : network.parameters()) place(tensor);
  for (const torch::Tensor& tensor : network.buffers()) place(tensor);
  to_channels_last(network);
}

std::int64_t reserved_bytes(torch::Device device) {
  if (!device.is_cuda()) return 0;
  at::globalContext().lazyInitDevice(device.type());  // before its first tensor, the allocator knows no card
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).reserved_bytes[kAll].current;
}

std::unique_ptr<Prepared> prepare_for(Setup& setup, const Wanted& wanted, const Limits& limits) {
  check_formats(setup, wanted);
  constexpr int kAttempts = 4;
  std::int64_t less = 0;
  for (int attempt = 1;; ++attempt) {
    std::unique_ptr<Prepared> prepared = build(setup, wanted, limits, less);
    if (setup.options.vram_mb == 0 || attempt == kAttempts) return prepared;
    // What was planned is what tensors take; the allocator may hold more.
    const std::int64_t over =
        reserved_bytes(setup.options.device) - setup.reserved_before - (setup.options.vram_mb << 20);
    if (over <= 0) return prepared;
    less += over + over / 4;
    prepared.reset();
    return_unused_memory();
  }
}

}  // namespace reelgrad
