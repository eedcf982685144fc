#include "reelgrad/cli/restore_frames.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "reelgrad/base/console.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/queue.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/clip/interlaced.h"

namespace reelgrad::cli {
namespace {

struct RestoredFrame {
  OwnedPicture picture;
  Rational duration;
};
using Restored = std::vector<RestoredFrame>;  // of one window

[[noreturn]] void throw_interrupted() {
  throw Error(ErrorKind::interrupted, "interrupted");
}

// Threads that restore.
class Workers {
 public:
  explicit Workers(int threads) : tasks_(1) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }

  // What is being restored is finished, what waits is not begun.
  ~Workers() {
    stopping_ = true;
    tasks_.close();
    for (std::thread& thread : threads_) thread.join();
  }

  // Waits for a thread that is free, or soon will be.
  std::future<Restored> submit(std::function<Restored()> restore) {
    std::packaged_task<Restored()> task([this, restore = std::move(restore)] {
      if (stopping_) throw_interrupted();
      return restore();
    });
    std::future<Restored> restored = task.get_future();
    tasks_.push(std::move(task));
    return restored;
  }

 private:
  void run() {
    while (auto task = tasks_.pop()) (*task)();
  }

  BoundedQueue<std::packaged_task<Restored()>> tasks_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_ = false;
};

// Encodes in its own thread, so that the network need not wait for the encoder. The order is that of push().
class EncoderThread {
 public:
  EncoderThread(VideoWriter& writer, std::int64_t total, std::size_t waiting)
      : writer_(writer), total_(total), queue_(waiting), thread_([this] { run(); }) {}

  ~EncoderThread() {
    abandoned_ = true;
    queue_.close();
    if (thread_.joinable()) thread_.join();
  }

  // Throws what restoring or the encoder failed with.
  void push(std::future<Restored> frames) {
    if (!queue_.push(std::move(frames))) finish();
  }

  void finish() {
    queue_.close();
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run() {
    try {
      while (auto frames = queue_.pop()) write(frames->get());
    } catch (...) {
      failure_ = std::current_exception();
      queue_.close();
    }
  }

  void write(const Restored& frames) {
    for (const RestoredFrame& frame : frames) {
      if (abandoned_) return;
      writer_.write(frame.picture.view(), frame.duration);
      progress_.update("frame", ++done_, total_, "fps");
    }
  }

  VideoWriter& writer_;
  std::int64_t total_, done_ = 0;
  console::Progress progress_;
  BoundedQueue<std::future<Restored>> queue_;
  std::atomic<bool> abandoned_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

// One call of the session: a window, and which of its frames are wanted.
struct Call {
  std::vector<Frame> window;
  FrameRange wanted;
};

Restored restore(RestorerSession& session, const std::string& clip, const VideoFormat& format, PictureSize size,
                 const Call& call) {
  RestoreJob job{.clip = clip, .stop_requested = stop_requested};
  for (const Frame& frame : call.window) job.window.push_back({frame.view(), frame.number()});
  std::vector<OwnedPicture> pictures;
  std::vector<MutableFrameView> outs;
  for (int i = 0; i < session.outputs(); ++i) pictures.emplace_back(format, size.width, size.height);
  for (OwnedPicture& picture : pictures) outs.push_back(picture.mutable_view());
  ColorProps color;
  session.restore(job, outs, color).raise();

  // The pictures of a session that gives several are those of its window, from the first.
  const std::int64_t first = pictures.size() == 1 ? call.wanted.begin : call.window.front().number();
  Restored restored;
  for (std::int64_t n = call.wanted.begin; n < call.wanted.end; ++n) {
    const auto frame =
        std::find_if(call.window.begin(), call.window.end(), [n](const Frame& f) { return f.number() == n; });
    restored.push_back({std::move(pictures[static_cast<std::size_t>(n - first)]), frame->duration()});
  }
  return restored;
}

void warn_of_interlaced(const Clip& clip, const Call& call) {
  for (const Frame& frame : call.window) {
    if (frame.number() >= call.wanted.begin && frame.number() < call.wanted.end) warn_if_interlaced(clip, frame);
  }
}

}  // namespace

void restore_frames(RestorerSession& session, const Clip& clip, FrameRange range, const WindowOptions& windows,
                    VideoWriter& writer, PictureSize size) {
  const int side_by_side = std::max(1, session.streams());
  const VideoFormat format = writer.format();
  WindowReader reader(clip, range, session.window(), windows);
  EncoderThread encoder(writer, range.size(), static_cast<std::size_t>(side_by_side) + 2);
  Workers workers(side_by_side);  // ends before the encoder, which may wait for what it will not begin
  for (std::int64_t n = range.begin; n < range.end; n = reader.restored().end) {
    if (stop_requested()) throw_interrupted();
    reader.next();
    Call call{reader.window(), reader.restored()};
    warn_of_interlaced(clip, call);
    encoder.push(workers.submit([&session, &clip, format, size, call = std::move(call)] {
      return restore(session, clip.name(), format, size, call);
    }));
  }
  encoder.finish();
}

}  // namespace reelgrad::cli
