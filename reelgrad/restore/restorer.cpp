#include "reelgrad/restore/restorer.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/frame_uploader.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/restore/tiling.h"
#include "reelgrad/train/out_of_memory.h"

namespace reelgrad {
namespace {

// Smaller tiles than this would spend nearly all their work on the context around them.
constexpr int kSmallestTilePx = 32;

torch::ScalarType resolve_precision(const std::string& precision, torch::Device device) {
  const bool on_card = device.is_cuda();
  if (precision == "auto") return on_card ? torch::kHalf : torch::kFloat;
  if (precision == "fp32") return torch::kFloat;
  if (precision == "bf16") {
    if (on_card && at::cuda::getDeviceProperties(device.index())->major < 8) {
      fail_usage("precision: bf16 needs a card of compute capability 8.0 or later (allowed here: auto, fp32, fp16)");
    }
    return torch::kBFloat16;
  }
  if (precision == "fp16") {
    if (!on_card) fail_usage("precision: fp16 needs a CUDA card (allowed on the CPU: auto, fp32, bf16)");
    return torch::kHalf;
  }
  fail_usage(fmt::format("precision: unknown \"{}\" (allowed: auto, fp32, fp16, bf16)", precision));
}

std::string precision_name(torch::ScalarType type) {
  return type == torch::kHalf ? "fp16" : type == torch::kBFloat16 ? "bf16" : "fp32";
}

torch::Device with_index(torch::Device device) {
  return device.is_cuda() && !device.has_index() ? torch::Device(torch::kCUDA, 0) : device;
}

// Grows the last two sides of [N, C, H, W] at the bottom and right by reflection. A reflection can add at most the side
// less one, so that small pictures take several.
torch::Tensor pad_to(torch::Tensor picture, std::int64_t height, std::int64_t width) {
  while (picture.size(2) < height || picture.size(3) < width) {
    const std::int64_t rows = height - picture.size(2), columns = width - picture.size(3);
    const bool single_row = picture.size(2) == 1, single_column = picture.size(3) == 1;
    if ((rows > 0 && single_row) || (columns > 0 && single_column)) {
      picture = at::replication_pad2d(picture, {0, single_column ? columns : 0, 0, single_row ? rows : 0});
    } else {
      picture = at::reflection_pad2d(
          picture, {0, std::min(columns, picture.size(3) - 1), 0, std::min(rows, picture.size(2) - 1)});
    }
  }
  return picture;
}

bool same_family(const FrameView& frame, const MutableFrameView& out) {
  return frame.format.family == out.format.family;
}

void copy_plane(const FrameView& from, const MutableFrameView& to, int plane) {
  const std::size_t row_bytes = static_cast<std::size_t>(from.format.plane_width(from.width, plane)) *
                                static_cast<std::size_t>(from.format.bytes_per_sample());
  const int rows = from.format.plane_height(from.height, plane);
  for (int y = 0; y < rows; ++y) {
    std::memcpy(to.planes[plane].data + y * to.planes[plane].stride_bytes,
                from.planes[plane].data + y * from.planes[plane].stride_bytes, row_bytes);
  }
}

}  // namespace

struct Restorer::Impl {
  std::shared_ptr<Network> network;
  NetworkSpec spec;
  RestoreOptions options;
  NetworkInfo network_info;
  torch::ScalarType type;
  int tile;     // multiple of the network's; 0: whole pictures
  int overlap;  // multiple of the network's
  mutable std::mutex mutex;

  std::mutex uploader_mutex;
  std::shared_ptr<FrameUploader> uploader;  // of a card: for the frames seen last

  Impl(std::shared_ptr<Network> taken, const NetworkSpec& network_spec, RestoreOptions restore_options)
      : network(std::move(taken)),
        spec(network_spec),
        options(std::move(restore_options)),
        network_info(network->info()) {
    options.device = with_index(options.device);
    if (options.tile_px < 0) fail_usage(fmt::format("tile: {} (allowed: 0 or more pixels)", options.tile_px));
    if (options.overlap_px < -1) fail_usage(fmt::format("overlap: {} (allowed: 0 or more pixels)", options.overlap_px));
    type = resolve_precision(options.precision, options.device);
    const int multiple = network_info.size_multiple;
    tile = round_up(options.tile_px, multiple);
    overlap = round_up(options.overlap_px < 0 ? network_info.receptive_radius_px : options.overlap_px, multiple);

    torch::NoGradGuard no_grad;
    network->to(options.device, type);
    network->eval();
    to_channels_last(*network);
  }

  // The network on one padded picture or tile, [1, C, H, W] or [1, T, C, H, W].
  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = input.to(type);
    if (x.dim() == 4) x = x.contiguous(torch::MemoryFormat::ChannelsLast);
    return network->forward(x);
  }

  // `out` [C, H * scale, W * scale]; `padded` [1, (T,) C, Hp, Wp] with Hp >= H and Wp >= W.
  void run_tiles(const torch::Tensor& padded, int tile_px, torch::Tensor out) {
    const int scale = network_info.scale;
    const std::int64_t last = padded.dim() - 1;
    const int height = static_cast<int>(padded.size(last - 1)), width = static_cast<int>(padded.size(last));
    for (const TileSpan& y : split_into_tiles(height, tile_px, overlap)) {
      for (const TileSpan& x : split_into_tiles(width, tile_px, overlap)) {
        const std::int64_t rows = std::min<std::int64_t>(y.keep_size * scale, out.size(1) - y.keep_begin * scale);
        const std::int64_t columns = std::min<std::int64_t>(x.keep_size * scale, out.size(2) - x.keep_begin * scale);
        if (rows <= 0 || columns <= 0) continue;  // only padding
        const torch::Tensor part = padded.narrow(last - 1, y.begin, y.size).narrow(last, x.begin, x.size);
        const torch::Tensor restored = forward(part)[0];
        out.narrow(1, y.keep_begin * scale, rows)
            .narrow(2, x.keep_begin * scale, columns)
            .copy_(restored.narrow(1, (y.keep_begin - y.begin) * scale, rows)
                       .narrow(2, (x.keep_begin - x.begin) * scale, columns));
      }
    }
  }

  // False when memory ran out; everything that the attempt allocated is released by then.
  bool attempt(const torch::Tensor& padded, int tile_px, torch::Tensor out, std::string& reason) {
    try {
      run_tiles(padded, tile_px, std::move(out));
      return true;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error, options.device)) throw;
      reason = first_line(error);
    }
    return false;
  }

  torch::Tensor run(const torch::Tensor& input) {
    std::lock_guard lock(mutex);
    const std::int64_t last = input.dim() - 1;
    const bool windowed = network_info.window > 1;
    TORCH_CHECK(input.dim() == (windowed ? 4 : 3), "the network wants ", windowed ? "[T, C, H, W]" : "[C, H, W]",
                ", got ", input.sizes());
    c10::cuda::OptionalCUDAGuard device_guard;
    if (options.device.is_cuda()) device_guard.set_device(options.device);
    // Made outside of inference mode, so that callers may work in place on it.
    torch::Tensor out = torch::empty(
        {network_info.out_channels, input.size(last - 1) * network_info.scale, input.size(last) * network_info.scale},
        torch::dtype(options.device.is_cuda() ? type : torch::kFloat).device(options.device));
    c10::InferenceMode inference;
    const int multiple = network_info.size_multiple;
    const int height = round_up(static_cast<int>(input.size(last - 1)), multiple);
    const int width = round_up(static_cast<int>(input.size(last)), multiple);
    torch::Tensor padded = input.to(options.device);
    padded = pad_to(windowed ? padded : padded.unsqueeze(0), height, width);
    if (windowed) padded = padded.unsqueeze(0);
    run_within_memory(padded, std::max(height, width), out);
    return out;
  }

  void run_within_memory(const torch::Tensor& padded, int longest_side, const torch::Tensor& out) {
    std::string reason;
    int tile_px = tile > 0 ? std::min(tile, longest_side) : longest_side;
    while (!attempt(padded, tile_px, out, reason)) {
      if (options.device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
      const int smaller = round_up(std::max((tile_px + 1) / 2, kSmallestTilePx), network_info.size_multiple);
      if (smaller >= tile_px) {
        throw Error(ErrorKind::out_of_memory,
                    fmt::format("restoring a {}x{} picture: not even tiles of {} px fit into the memory of {}: {}",
                                padded.size(padded.dim() - 1), padded.size(padded.dim() - 2), tile_px,
                                options.device.str(), reason));
      }
      tile_px = tile = smaller;
      log::warn_once(
          "restore: out of memory",
          fmt::format("memory of {} ran out: restoring in tiles (--tile sets their size)", options.device.str()));
    }
  }

  // [C, H, W] on the device, in the network's precision where it is a card.
  torch::Tensor to_input(const FrameView& frame, const ColorSpec& color) {
    if (!options.device.is_cuda()) return to_tensor(frame, color, spec.color, options.device);
    if (frame.gpu) return to_tensor(frame, color, spec.color, options.device, {.dtype = type});
    return uploader_for(frame)->to_tensor(frame, color, spec.color, type);
  }

  std::shared_ptr<FrameUploader> uploader_for(const FrameView& frame) {
    std::lock_guard lock(uploader_mutex);
    if (!uploader || !uploader->takes(frame)) {
      uploader = std::make_shared<FrameUploader>(frame.format, frame.width, frame.height, options.device);
    }
    return uploader;
  }

  // Chroma of a gray network's picture: luma from the network, the rest enlarged.
  void restore_luma(const FrameView& middle, const ColorSpec& color, const torch::Tensor& restored,
                    const MutableFrameView& out) {
    const bool copy_chroma =
        network_info.scale == 1 && middle.format == out.format && middle.format.family == ColorFamily::yuv;
    if (copy_chroma) {
      to_picture(restored, NetworkColor::gray, color, out);
      const HostView host(middle);
      copy_plane(host.get(), out, 1);
      copy_plane(host.get(), out, 2);
      return;
    }
    torch::Tensor yuv = to_tensor(middle, color, NetworkColor::yuv444, options.device);
    const torch::Tensor chroma =
        at::upsample_bicubic2d(yuv.narrow(0, 1, 2).unsqueeze(0), {out.height, out.width}, /*align_corners=*/false)[0];
    to_picture(torch::cat({restored, chroma}), NetworkColor::yuv444, color, out);
  }
};

Restorer::Restorer(std::shared_ptr<Network> network, const NetworkSpec& spec, RestoreOptions options)
    : impl_(std::make_shared<Impl>(std::move(network), spec, std::move(options))) {}

torch::Tensor Restorer::run(const torch::Tensor& input) {
  return impl_->run(input);
}

void Restorer::restore(std::span<const FrameView> window, const std::string& name, std::int64_t frame,
                       const MutableFrameView& out) {
  const NetworkInfo& network = impl_->network_info;
  const FrameView& middle = window[window.size() / 2];
  TORCH_CHECK(static_cast<int>(window.size()) == network.window, "the network wants ", network.window, " frames, got ",
              window.size());
  TORCH_CHECK(out.width == middle.width * network.scale && out.height == middle.height * network.scale &&
                  same_family(middle, out),
              "restore: the output picture does not fit the input's size, the scale or the colour family");
  c10::cuda::OptionalCUDAGuard device_guard;
  if (impl_->options.device.is_cuda()) device_guard.set_device(impl_->options.device);
  torch::NoGradGuard no_grad;

  const ColorSpec color =
      resolve_color(middle.format, middle.color, middle.height, impl_->options.overrides, name, frame);
  std::vector<torch::Tensor> pictures;
  for (const FrameView& view : window) {
    pictures.push_back(impl_->to_input(view, color));
  }
  const torch::Tensor restored = impl_->run(network.window == 1 ? pictures.front() : torch::stack(pictures));
  if (impl_->spec.color == NetworkColor::gray && middle.format.family != ColorFamily::gray) {
    impl_->restore_luma(middle, color, restored, out);
  } else {
    to_picture(restored, impl_->spec.color, color, out);
  }
}

NetworkInfo Restorer::info() const {
  return impl_->network_info;
}

torch::Device Restorer::device() const {
  return impl_->options.device;
}

const NetworkSpec& Restorer::spec() const {
  return impl_->spec;
}

std::string Restorer::describe() const {
  std::lock_guard lock(impl_->mutex);
  const std::string area =
      impl_->tile == 0 ? "whole frames" : fmt::format("tiles of {} px (overlap {})", impl_->tile, impl_->overlap);
  return fmt::format("{}, {}, {}", area, precision_name(impl_->type), impl_->options.device.str());
}

}  // namespace reelgrad
