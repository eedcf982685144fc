#pragma once
#include <VapourSynth4.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "reelgrad/clip/gpu_input.h"
#include "reelgrad/clip/gpu_output.h"
#include "reelgrad/clip/window.h"
#include "reelgrad/engine/engine.h"
#include "reelgrad/plugin/model_arguments.h"
#include "reelgrad/plugin/tickets.h"
#include "reelgrad/plugin/vs_guard.h"

namespace reelgrad::vs {

// Where requests for the frames of one reach (segment_reach) find what the first of them had restored. While it waits
// for the network, so do the others. Failures are shared as well.
class SharedSegments {
 public:
  struct Restored {
    std::vector<FrameHandle> frames;  // of the segment's own
    std::exception_ptr failure;
  };
  // Calls `make` where nobody has, for the segment that begins there. The result lives as long as this. Throws make's
  // exception.
  template <class Make>
  const std::vector<FrameHandle>& restored(std::int64_t begin, Make&& make) {
    std::lock_guard lock(mutex_);
    const auto [place, is_new] = segments_.try_emplace(begin);
    Restored& segment = place->second;
    try {
      if (is_new) segment.frames = make();
    } catch (...) {
      segment.failure = std::current_exception();
    }
    if (segment.failure) std::rethrow_exception(segment.failure);
    return segment.frames;
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, Restored> segments_;
};

// Of the clip that comes out.
VSVideoInfo restored_info(const ModelArguments& arguments, int scale);

// One Model of a script. VapourSynth's threads call it side by side.
class ModelFilter {
 public:
  // The session is prepared. `on_card` and `to_card`: the clip's frames, and those that come out, where they are on the
  // network's card; null: they are in host memory.
  ModelFilter(ModelArguments arguments, std::unique_ptr<RestorerSession> session, std::unique_ptr<GpuInput> on_card,
              std::unique_ptr<GpuOutput> to_card);

  const VSVideoInfo& output() const { return output_; }
  std::vector<VSFilterDependency> dependencies(const VSAPI* api) const;
  bool gives_card_frames() const { return to_card_ != nullptr; }
  // The network restores all of its window.
  bool in_segments() const { return session_->outputs() > 1; }
  int window() const { return session_->window(); }

  // Asks for what the frame needs.
  void request(int n, VSFrameContext* context, const VSAPI* api) const;
  // Of a network that restores all of its window: to be kept from the request until the frame is there.
  std::shared_ptr<SharedSegments> join(int n);
  // Its properties are the input's but for those that say what the samples hold. Throws. `shared`: of join().
  const VSFrame* restore(int n, SharedSegments* shared, VSFrameContext* context, VSCore* core, const VSAPI* api);

  // To be called before it is destroyed: lets go of what the engine made.
  void close(VSCore* core, const VSAPI* api) noexcept;

 private:
  struct Input {
    std::shared_ptr<const VSFrame> frame;
    std::shared_ptr<const GpuPicture> picture;  // of a clip on the network's card
    FrameView view;
  };
  // The frames of a reach.
  struct Inputs {
    FrameRange reach;
    std::vector<Input> frames;
    const Input& at(std::int64_t n) const { return frames[static_cast<std::size_t>(n - reach.begin)]; }
  };

  FrameRange reach(int n) const;
  int sigma_frame(std::int64_t n, const VSAPI* api) const;
  Inputs take(int n, VSFrameContext* context, const VSAPI* api) const;
  Input take_one(int n, VSFrameContext* context, const VSAPI* api) const;
  WindowSegment plan(int n, const Inputs& inputs, const VSAPI* api) const;
  // The segment's own frames.
  std::vector<FrameHandle> run(const WindowSegment& segment, const Inputs& inputs, VSFrameContext* context,
                               VSCore* core, const VSAPI* api);
  // A frame to be restored, with these properties or none.
  GpuOutput::Made make_frame(const VSFrame* props, VSCore* core, const VSAPI* api) const;
  void finish(VSFrame* frame, const ColorProps& color, VSCore* core, const VSAPI* api) const;

  ModelArguments arguments_;
  VSVideoInfo output_;
  std::unique_ptr<RestorerSession> session_;
  std::unique_ptr<GpuInput> on_card_;
  std::unique_ptr<GpuOutput> to_card_;
  Tickets tickets_;

  std::mutex shared_mutex_;
  std::map<std::int64_t, std::weak_ptr<SharedSegments>> shared_;  // by the reach's first frame
};

}  // namespace reelgrad::vs
