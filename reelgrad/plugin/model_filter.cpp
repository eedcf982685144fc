#include "reelgrad/plugin/model_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/vs_convert.h"
#include "reelgrad/plugin/engine_call.h"
#include "reelgrad/plugin/output_props.h"

namespace reelgrad::vs {
namespace {

bool flag(const VSFrame* frame, const char* key, const VSAPI* api) {
  return int_prop(api->getFramePropertiesRO(frame), key, 0, api) != 0;
}

std::string frames_text(FrameRange frames) {
  return frames.size() == 1 ? fmt::format("frame {}", frames.begin)
                            : fmt::format("frames {} to {}", frames.begin, frames.end - 1);
}

}  // namespace

VSVideoInfo restored_info(const ModelArguments& arguments, int scale) {
  VSVideoInfo info = arguments.input;
  info.format = arguments.output;
  info.width *= scale;
  info.height *= scale;
  return info;
}

ModelFilter::ModelFilter(ModelArguments arguments, std::unique_ptr<RestorerSession> session,
                         std::unique_ptr<GpuInput> on_card, std::unique_ptr<GpuOutput> to_card)
    : arguments_(std::move(arguments)),
      output_(restored_info(arguments_, session->scale())),
      session_(std::move(session)),
      on_card_(std::move(on_card)),
      to_card_(std::move(to_card)),
      tickets_(session_->streams()) {}

std::vector<VSFilterDependency> ModelFilter::dependencies(const VSAPI* api) const {
  const bool one_frame = window() == 1;
  std::vector<VSFilterDependency> nodes{{arguments_.clip.get(), one_frame ? rpStrictSpatial : rpGeneral}};
  if (VSNode* sigma = arguments_.sigma_clip.get()) {
    const bool as_long = api->getVideoInfo(sigma)->numFrames >= arguments_.input.numFrames;
    nodes.push_back({sigma, !in_segments() && as_long ? rpStrictSpatial : rpGeneral});
  }
  return nodes;
}

FrameRange ModelFilter::reach(int n) const {
  const int frames = arguments_.input.numFrames;
  return in_segments() ? segment_reach(n, frames, window()) : window_reach(n, frames, window());
}

int ModelFilter::sigma_frame(std::int64_t n, const VSAPI* api) const {
  const int last = api->getVideoInfo(arguments_.sigma_clip.get())->numFrames - 1;
  return static_cast<int>(std::min<std::int64_t>(n, last));
}

void ModelFilter::request(int n, VSFrameContext* context, const VSAPI* api) const {
  const FrameRange needed = reach(n);
  for (std::int64_t i = needed.begin; i < needed.end; ++i) {
    api->requestFrameFilter(static_cast<int>(i), arguments_.clip.get(), context);
  }
  if (!arguments_.sigma_clip) return;
  const FrameRange sigmas = in_segments() ? needed : FrameRange{n, n + 1};
  for (std::int64_t i = sigmas.begin; i < sigmas.end; ++i) {
    api->requestFrameFilter(sigma_frame(i, api), arguments_.sigma_clip.get(), context);
  }
}

std::shared_ptr<SharedSegments> ModelFilter::join(int n) {
  std::lock_guard lock(shared_mutex_);
  std::erase_if(shared_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<SharedSegments>& place = shared_[reach(n).begin];
  std::shared_ptr<SharedSegments> shared = place.lock();
  if (!shared) place = shared = std::make_shared<SharedSegments>();
  return shared;
}

const VSFrame* ModelFilter::restore(int n, SharedSegments* shared, VSFrameContext* context, VSCore* core,
                                    const VSAPI* api) {
  const EngineCall call(core, api);  // taking frames on the card is the engine's work, too
  const Inputs inputs = take(n, context, api);
  const WindowSegment segment = plan(n, inputs, api);
  if (!shared) return run(segment, inputs, context, core, api).front().release();
  const auto make = [&] {
    std::vector<FrameHandle> frames = run(segment, inputs, context, core, api);
    for (std::int64_t i = segment.own.begin; i < segment.own.end; ++i) {
      const VSFrame* frame = frames[static_cast<std::size_t>(i - segment.own.begin)].get();
      if (i != n) api->cacheFrame(frame, static_cast<int>(i), context);
    }
    return frames;
  };
  const std::vector<FrameHandle>& frames = shared->restored(segment.own.begin, make);
  return api->addFrameRef(frames[static_cast<std::size_t>(n - segment.own.begin)].get());
}

void ModelFilter::close(VSCore* core, const VSAPI* api) noexcept {
  close_all(core, api, on_card_, to_card_, session_);  // in this order: the readers of frames are of the session's card
}

// Each frame of the reach once, as it was asked for once.
ModelFilter::Inputs ModelFilter::take(int n, VSFrameContext* context, const VSAPI* api) const {
  Inputs inputs{reach(n), {}};
  for (std::int64_t i = inputs.reach.begin; i < inputs.reach.end; ++i) {
    inputs.frames.push_back(take_one(static_cast<int>(i), context, api));
  }
  return inputs;
}

ModelFilter::Input ModelFilter::take_one(int n, VSFrameContext* context, const VSAPI* api) const {
  if (!on_card_) {
    const std::shared_ptr<const VSFrame> frame(api->getFrameFilter(n, arguments_.clip.get(), context), FreeFrame{api});
    return {frame, nullptr, frame_view(frame.get(), api)};
  }
  const auto [frame, picture] = on_card_->take(n, context);
  const RestoreFormat& format = arguments_.format;
  const ColorProps color = color_props(api->getFramePropertiesRO(frame.get()), api);
  return {frame, picture, {format.input, format.width, format.height, {}, color, picture.get()}};
}

WindowSegment ModelFilter::plan(int n, const Inputs& inputs, const VSAPI* api) const {
  const auto begins_scene = [&](std::int64_t i) {
    return arguments_.scene_cuts && (flag(inputs.at(i).frame.get(), "_SceneChangePrev", api) ||
                                     flag(inputs.at(i - 1).frame.get(), "_SceneChangeNext", api));
  };
  const int frames = arguments_.input.numFrames;
  if (in_segments()) return segment_of(n, frames, window(), arguments_.ends, begins_scene);
  return {{n, n + 1}, window_frames(n, frames, window(), arguments_.ends, begins_scene)};
}

std::vector<FrameHandle> ModelFilter::run(const WindowSegment& segment, const Inputs& inputs, VSFrameContext* context,
                                          VSCore* core, const VSAPI* api) {
  RestoreJob job{.clip = "the clip"};
  for (const std::int64_t i : segment.frames) job.window.push_back({inputs.at(i).view, i});
  FrameHandle sigma(nullptr, FreeFrame{api});
  if (VSNode* node = arguments_.sigma_clip.get()) {
    sigma.reset(api->getFrameFilter(sigma_frame(segment.own.begin, api), node, context));
    job.sigma = frame_view(sigma.get(), api);
  }

  const Ticket ticket(tickets_, segment.own.begin);
  std::vector<FrameHandle> frames;
  std::vector<VSFrame*> own;
  std::vector<MutableFrameView> outs;
  std::vector<std::shared_ptr<const GpuCanvas>> canvases;
  for (int i = 0; i < session_->outputs(); ++i) {
    const std::int64_t n = segment.own.begin + i;
    const VSFrame* props = n < segment.own.end ? inputs.at(n).frame.get() : nullptr;
    GpuOutput::Made made = make_frame(props, core, api);
    frames.emplace_back(made.frame, FreeFrame{api});
    outs.push_back(made.view);
    canvases.push_back(std::move(made.canvas));
    if (props) own.push_back(made.frame);
  }
  ColorProps color;
  const Status status = session_->restore(job, outs, color);
  if (!status.ok) fail(fmt::format("{}: {}", frames_text(segment.own), status.message));
  frames.resize(own.size());
  for (VSFrame* frame : own) finish(frame, color, core, api);
  return frames;
}

GpuOutput::Made ModelFilter::make_frame(const VSFrame* props, VSCore* core, const VSAPI* api) const {
  if (to_card_) return to_card_->make(props, core);
  VSFrame* frame = api->newVideoFrame(&output_.format, output_.width, output_.height, props, core);
  return {frame, nullptr, writable_view(frame, api)};
}

void ModelFilter::finish(VSFrame* frame, const ColorProps& color, VSCore* core, const VSAPI* api) const {
  if (to_card_) to_card_->finish(frame);
  write_color_props(api->getFramePropertiesRW(frame), color, arguments_.format.input, arguments_.format.output, api);
  fit_alpha(frame, *session_, core, api);
}

}  // namespace reelgrad::vs
