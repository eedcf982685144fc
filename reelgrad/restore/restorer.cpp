#include "reelgrad/restore/restorer.h"

#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/restore/card_context.h"
#include "reelgrad/restore/color_plan.h"
#include "reelgrad/restore/fit.h"
#include "reelgrad/restore/overlap_measure.h"
#include "reelgrad/restore/precision.h"
#include "reelgrad/restore/preparation.h"
#include "reelgrad/train/out_of_memory.h"

namespace reelgrad {
namespace {

constexpr ColorSpec kFullRange{.full_range = true};

torch::Device with_index(torch::Device device) {
  return device.is_cuda() && !device.has_index() ? torch::Device(torch::kCUDA, 0) : device;
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

// The pictures of a call where the device reads them. It must live until the device has.
struct Readable {
  std::vector<PictureRef> refs;
  std::vector<std::shared_ptr<const FrameCache::Picture>> on_card;
  std::vector<std::unique_ptr<HostView>> on_host;
};

// In place, for what has been added is being read or written even where a later one fails.
void make_readable(const RestoreCall& call, FrameCache* cache, Readable& readable) {
  for (const RestoreFrame& frame : call.window) {
    if (!cache) {
      readable.on_host.push_back(std::make_unique<HostView>(frame.view));
      readable.refs.push_back(picture_ref(readable.on_host.back()->get()));
    } else if (const DevicePicture* picture = device_picture(frame.view)) {
      picture->wait_on(c10::cuda::getCurrentCUDAStream());
      readable.refs.push_back(picture->ref());
    } else {
      readable.on_card.push_back(cache->get(frame.view, frame.number));
      readable.refs.push_back(readable.on_card.back()->ref());
    }
  }
}

}  // namespace

struct Restorer::Impl {
  Setup setup;
  mutable std::shared_mutex use;  // shared: restoring; exclusive: preparing
  std::unique_ptr<Prepared> prepared;
  std::int64_t generation = 0;  // counts what was prepared
  Limits limits;

  Impl(std::shared_ptr<Network> network, const NetworkSpec& spec, RestoreOptions options)
      : setup{.network = std::move(network), .spec = spec, .options = std::move(options)} {
    setup.info = setup.network->info();
    setup.options.device = with_index(setup.options.device);
    const torch::Device device = setup.options.device;
    check_options(setup.options, setup.info, spec.arch);
    setup.type = restoring_type(setup.options.precision, device);
    setup.sigma = setup.options.sigma;
    // With it in a channel from the start, a picture of levels needs no other graphs.
    if (setup.info.noise_level && !setup.sigma) setup.sigma = own_sigma(spec);
    setup.reserved_before = reserved_bytes(device);
    setup.network->eval();
    if (setup.options.overlap_px == RestoreOptions::kMeasured) setup.weights_hash = weights_hash(*setup.network);
    place_network(*setup.network, device, setup.type);
  }

  // The card's memory goes back to the system: another restorer may never come.
  ~Impl() {
    try {
      const CardContext context(device());
      prepared.reset();
      setup.network.reset();
      if (device().is_cuda()) return_unused_memory();
    } catch (const std::exception&) {
      // A card that has failed has told its user already.
    }
  }

  torch::Device device() const { return setup.options.device; }

  // Calls `work` with what restores such pictures: again, with less at once, when memory runs out.
  template <class Work>
  void with_prepared(const Wanted& wanted, const Work& work) {
    std::string reason;
    std::int64_t seen = -1;
    for (;;) {
      {
        const std::shared_lock lock(use);
        if (prepared && prepared->wanted == wanted) {
          if (attempt([&] { work(*prepared); }, reason)) return;
          seen = generation;
        }
      }
      const std::unique_lock lock(use);
      if (prepared && prepared->wanted == wanted && seen != generation) continue;  // another thread was first
      if (!reason.empty()) take_less(wanted, reason);
      reason.clear();
      while (!attempt([&] { prepare(wanted); }, reason)) take_less(wanted, reason);
      reason.clear();
    }
  }

  // False when memory ran out; everything that the attempt allocated is released by then.
  template <class Work>
  bool attempt(const Work& work, std::string& reason) const {
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error, device())) throw;
      reason = first_line(error);
    }
    return false;
  }

  void prepare(const Wanted& wanted) {
    release();
    prepared = prepare_for(setup, wanted, limits);
    ++generation;
  }

  void release() {
    prepared.reset();
    if (device().is_cuda()) return_unused_memory();
  }

  void take_less(const Wanted& wanted, const std::string& reason) {
    const bool may_be_staged = !limits.no_stages && (!prepared || prepared->parts);
    if (may_be_staged && setup.network->window_stages()) {
      release();
      limits.no_stages = true;
      return;
    }
    const int longest = std::max(wanted.width, wanted.height);
    const int tile = prepared && !prepared->area.whole() ? std::min(prepared->area.sizes.keep, longest)
                     : limits.tile_px > 0                ? std::min(limits.tile_px, longest)
                     : setup.options.tile_px > 0         ? std::min(setup.options.tile_px, longest)
                                                         : longest;
    const bool lanes_left = limits.lanes != 1 && (!prepared || prepared->lanes->count() > 1);
    release();
    if (lanes_left) {
      limits.lanes = 1;
      return;
    }
    const int smaller = round_up(std::max((tile + 1) / 2, kSmallestTilePx), setup.info.size_multiple);
    if (setup.info.fixed_px > 0 || smaller >= tile) {
      throw Error(ErrorKind::out_of_memory,
                  fmt::format("restoring a {}x{} picture: not even tiles of {} px fit into the memory of {}: {}",
                              wanted.width, wanted.height, tile, device().str(), reason));
    }
    limits.tile_px = smaller;
    log::warn_once("restore: out of memory",
                   fmt::format("memory of {} ran out: restoring in tiles (--tile sets their size)", device().str()));
  }

  Wanted wanted_of(const RestoreShape& shape, bool noise_map) const {
    return {.width = shape.width,
            .height = shape.height,
            .input = shape.input,
            .output = shape.output,
            .noise_level = noise_map || setup.sigma.has_value()};
  }

  void check_call(const RestoreCall& call, const std::vector<MutableFrameView>& outs) const {
    const NetworkInfo& info = setup.info;
    TORCH_CHECK(static_cast<int>(call.window.size()) == info.window, "the network wants ", info.window, " frames, got ",
                call.window.size());
    TORCH_CHECK(static_cast<int>(outs.size()) == outputs(), "the network gives ", outputs(), " pictures, ", outs.size(),
                " are to be written");
    const FrameView& first = call.window.front().view;
    for (const RestoreFrame& frame : call.window) {
      TORCH_CHECK(
          frame.view.width == first.width && frame.view.height == first.height && frame.view.format == first.format,
          "restore: the pictures of a window differ in size or format");
    }
    for (const MutableFrameView& out : outs) {
      TORCH_CHECK(out.width == first.width * info.scale && out.height == first.height * info.scale &&
                      out.format == outs.front().format,
                  "restore: the output picture does not fit the input's size and the scale");
      TORCH_CHECK(!out.gpu || device().is_cuda(), "restore: the network is not on the output picture's card");
    }
    if (call.sigma && !info.noise_level) fail_usage(fmt::format("sigma: {} takes no noise level", setup.spec.arch));
    if (call.sigma && (call.sigma->width != first.width || call.sigma->height != first.height)) {
      fail_usage(fmt::format("sigma: its pictures are {}x{}, needed: {}x{}, as the clip's", call.sigma->width,
                             call.sigma->height, first.width, first.height));
    }
  }

  // Nothing that depends on a noise level of its own is known again.
  std::optional<NamedFrames> name_of(const RestoreCall& call, const ColorPlan& colors) const {
    NamedFrames name{.color = colors.read, .picture = colors.picture};
    for (const RestoreFrame& frame : call.window) {
      if (call.sigma || !frame.number) return std::nullopt;
      name.numbers.push_back(*frame.number);
    }
    return name;
  }

  int outputs() const { return setup.info.all_frames ? setup.info.window : 1; }

  void restore_on(Prepared& ready, Lane& lane, const RestoreCall& call, const ColorPlan& colors,
                  const std::vector<MutableFrameView>& outs) {
    Readable pictures;
    const Lane::Turn turn(lane);  // ends before the pictures go, whatever is thrown: then the card has read them
    make_readable(call, ready.frames.get(), pictures);
    const ElementType element = *element_type(setup.type);
    const FrameView& first = call.window.front().view;
    PictureSource source(pictures.refs,
                         {.format = first.format, .color = colors.read, .to = colors.picture, .element = element},
                         device());
    if (call.sigma) {
      source.set_noise_level(to_tensor(*call.sigma, kFullRange, NetworkColor::gray, device(), {.dtype = setup.type}));
    } else {
      source.set_noise_level(setup.sigma.value_or(0) / 255);
    }
    const ScatterSpec spec{.format = outs.front().format,
                           .color = colors.write,
                           .from = colors.picture,
                           .element = element,
                           .rounding = setup.options.ordered_dither ? Rounding::ordered : Rounding::nearest};
    const std::optional<NamedFrames> name = name_of(call, colors);
    if (!device().is_cuda()) {
      HostSink sink(spec, outs);
      lane.restore(source, sink, name, call.stop_requested);
      return;
    }
    if (outs.front().gpu) {
      CanvasSink sink(spec, outs);
      lane.restore(source, sink, name, call.stop_requested);
      if (colors.copies_chroma) sink.copy_chroma(restored_pictures(call));
      sink.finish();
      return;
    }
    CardSink sink(lane.downloads(), spec);
    lane.restore(source, sink, name, call.stop_requested);
    lane.downloads().finish(colors.copies_chroma ? 1 : spec.format.planes(), outs);
  }

  // Those of the window that come out.
  std::vector<FrameView> restored_pictures(const RestoreCall& call) const {
    const std::size_t first = setup.info.all_frames ? 0 : call.window.size() / 2;
    std::vector<FrameView> pictures;
    for (int i = 0; i < outputs(); ++i) pictures.push_back(call.window[first + static_cast<std::size_t>(i)].view);
    return pictures;
  }

  void copy_chroma(const RestoreCall& call, const std::vector<MutableFrameView>& outs) const {
    const std::vector<FrameView> pictures = restored_pictures(call);
    for (std::size_t i = 0; i < outs.size(); ++i) {
      const HostView host(pictures[i]);
      copy_plane(host.get(), outs[i], 1);
      copy_plane(host.get(), outs[i], 2);
    }
  }

  ColorPlan colors_of(const FrameView& view, const std::string& clip, std::int64_t frame,
                      const VideoFormat& output) const {
    const ColorSpec in = resolve_color(view.format, view.color, view.height, setup.options.overrides, clip, frame);
    const int out_height = view.height * setup.info.scale;
    return plan_colors(setup.spec.color, setup.info.scale, view.format, in, view.color, output, out_height);
  }

  ColorProps restore(const RestoreCall& call, const std::vector<MutableFrameView>& outs) {
    check_call(call, outs);
    const CardContext context(device());
    const RestoreFrame& middle = call.window[call.window.size() / 2];
    const FrameView& view = middle.view;
    const MutableFrameView& out = outs.front();
    const ColorPlan colors = colors_of(view, call.clip, call.frame, out.format);
    with_prepared(wanted_of({view.format, view.width, view.height, out.format}, call.sigma.has_value()),
                  [&](Prepared& ready) {
                    ready.lanes->with_one([&](Lane& lane) { restore_on(ready, lane, call, colors, outs); });
                  });
    if (colors.copies_chroma && !out.gpu) copy_chroma(call, outs);
    return colors.written;
  }

  torch::Tensor run(const torch::Tensor& input) {
    const NetworkInfo& info = setup.info;
    const bool windowed = info.window > 1;
    TORCH_CHECK(input.dim() == (windowed ? 4 : 3), "the network wants ", windowed ? "[T, C, H, W]" : "[C, H, W]",
                ", got ", input.sizes());
    const CardContext context(device());
    const std::int64_t height = input.size(-2), width = input.size(-1);
    // Made outside of inference mode, so that callers may work in place on it.
    const torch::Tensor out =
        torch::empty({outputs(), info.out_channels, height * info.scale, width * info.scale},
                     torch::dtype(device().is_cuda() ? setup.type : torch::kFloat).device(device()));
    const torch::Tensor frames = windowed ? input : input.unsqueeze(0);
    const Wanted wanted{.width = static_cast<int>(width),
                        .height = static_cast<int>(height),
                        .noise_level = frames.size(1) > info.in_channels};
    with_prepared(wanted, [&](Prepared& ready) {
      ready.lanes->with_one([&](Lane& lane) {
        const Lane::Turn turn(lane);
        const TensorSource source(frames.to(device(), setup.type));
        TensorSink sink(out);
        lane.restore(source, sink);
      });
    });
    return info.all_frames ? out : out[0];
  }
};

Restorer::Restorer(std::shared_ptr<Network> network, const NetworkSpec& spec, RestoreOptions options)
    : impl_(std::make_shared<Impl>(std::move(network), spec, std::move(options))) {}

void Restorer::prepare(const RestoreShape& shape) {
  const CardContext context(impl_->device());
  impl_->with_prepared(impl_->wanted_of(shape, /*noise_map=*/false), [](Prepared&) {});
}

ColorProps Restorer::restore(const RestoreCall& call, const std::vector<MutableFrameView>& outs) {
  return impl_->restore(call, outs);
}

void Restorer::restore(std::span<const FrameView> window, const std::string& name, std::int64_t frame,
                       const MutableFrameView& out) {
  RestoreCall call{.clip = name, .frame = frame};
  for (const FrameView& view : window) call.window.push_back({view, std::nullopt});
  impl_->restore(call, {out});
}

torch::Tensor Restorer::run(const torch::Tensor& input) {
  return impl_->run(input);
}

ColorProps Restorer::output_color(const FrameView& input, const std::string& clip, const VideoFormat& output) const {
  return impl_->colors_of(input, clip, 0, output).written;
}

NetworkInfo Restorer::info() const {
  return impl_->setup.info;
}

int Restorer::outputs() const {
  return impl_->outputs();
}

int Restorer::streams() const {
  const std::shared_lock lock(impl_->use);
  if (impl_->prepared) return impl_->prepared->lanes->count();
  const int asked = impl_->setup.options.streams;
  return asked > 0 ? asked : impl_->device().is_cuda() ? kDefaultLanes : kMostHostLanes;
}

torch::Device Restorer::device() const {
  return impl_->setup.options.device;
}

const NetworkSpec& Restorer::spec() const {
  return impl_->setup.spec;
}

std::string Restorer::arithmetic() const {
  return fmt::format("{}, {}", precision_name(impl_->setup.type), c10::DeviceTypeName(device().type(), true));
}

std::string Restorer::describe() const {
  const std::shared_lock lock(impl_->use);
  const Prepared* prepared = impl_->prepared.get();
  const bool whole = prepared ? prepared->area.whole() : impl_->setup.options.tile_px == 0;
  const int tile = prepared ? prepared->area.sizes.keep : impl_->setup.options.tile_px;
  std::string area = whole ? "whole frames" : fmt::format("tiles of {} px", tile);
  if (!whole && prepared) area += fmt::format(" (overlap {})", prepared->area.sizes.overlap);
  const int lanes = prepared ? prepared->lanes->count() : 1;
  return fmt::format("{}, {}, {}{}", area, precision_name(impl_->setup.type), impl_->device().str(),
                     lanes > 1 ? fmt::format(", {} streams", lanes) : "");
}

}  // namespace reelgrad
