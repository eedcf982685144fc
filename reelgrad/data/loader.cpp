#include "reelgrad/data/loader.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/data/script_pool.h"
#include "reelgrad/data/wait_meter.h"
#include "reelgrad/frames/color_props.h"

namespace reelgrad {
namespace {

using Clock = WaitMeter::Clock;

constexpr double kMuchWaiting = 0.2;  // of the time

std::vector<ClipSpan> spans_of(const std::vector<TrainingClip>& clips) {
  std::vector<ClipSpan> spans;
  for (const TrainingClip& clip : clips) spans.push_back(clip.span);
  return spans;
}

// Entries of the schedule that are held or being decoded at a time: the resident ones, and enough beyond them that
// decoding never stops and the next step's are under way.
int held_segments(const Sampler& sampler) {
  const SamplerConfig& config = sampler.config();
  const std::int64_t crops = std::int64_t{config.segment_frames} * config.reuse;
  const int a_step = static_cast<int>((config.batch + crops - 1) / crops);
  const int resident = sampler.resident_segments();
  return resident + std::max({1, a_step, resident / 4});
}

FramePool::Place choose_place(torch::Device device, std::size_t pool_bytes) {
  if (device.is_cpu()) return FramePool::Place::host;
  at::globalContext().lazyInitDevice(device.type());
  const auto [free_bytes, total_bytes] = at::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return pool_bytes <= free_bytes / 2 ? FramePool::Place::device : FramePool::Place::pinned_host;
}

std::string name_of(FramePool::Place place) {
  switch (place) {
    case FramePool::Place::device:
      return "on the card";
    case FramePool::Place::pinned_host:
      return "in page-locked host memory";
    case FramePool::Place::host:
      return "in host memory";
  }
  return "";
}

// Crops of equal format and colour, cut by one call.
class JobList {
 public:
  explicit JobList(NetworkColor color) : color_(color) {}

  void add(const ScriptPool::Side& side, int x, int y, int size, Orientation orientation, float* out) {
    auto group = std::ranges::find_if(groups_, [&](const Group& g) {
      return g.spec.format == side.format && g.spec.color == side.color && g.spec.width == size;
    });
    if (group == groups_.end()) {
      group = groups_.insert(groups_.end(), Group{{side.format, side.color, color_, size, size}, {}});
    }
    group->jobs.push_back({side.picture, x, y, orientation, out});
  }

  void run(torch::Device device) const {
    for (const Group& group : groups_) gather(group.spec, group.jobs, device);
  }

 private:
  struct Group {
    GatherSpec spec;
    std::vector<CropJob> jobs;
  };
  NetworkColor color_;
  std::vector<Group> groups_;
};

// Where the decoding thread spends its time.
struct StageSeconds {
  double decode = 0, store = 0;
  std::int64_t frames = 0;
};

class Stopwatch {
 public:
  double lap() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  Clock::time_point last_ = Clock::now();
};

}  // namespace

struct TrainingLoader::Impl {
  Impl(std::vector<TrainingClip> clips, const Config& config, torch::Device on, std::int64_t first_step,
       const LoaderOptions& options);
  ~Impl();

  // --- Decoding thread ---
  void decode();
  std::optional<std::int64_t> wait_turn();
  bool fill(ScriptPool& pool, const ScriptPool::Claim& claim, const Segment& segment);
  void wait_for_gathers();

  // --- Consumer ---
  int wait_ready(std::unique_lock<std::mutex>& lock, const Segment& segment);
  void watch_waits(Clock::time_point asked);
  void add_jobs(JobList& jobs, const Sample& sample, int slot, const Segment& segment, float* input,
                float* target) const;
  void mark_gathers();

  torch::Device device;
  Sampler sampler;
  NetworkColor color;
  int scale;
  int held;                         // entries of the schedule, see held_segments()
  std::map<int, ScriptPool> pools;  // by script
  std::string description;

  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t first_needed;  // first resident entry of the step that was asked for last
  std::int64_t to_decode;     // the decoding thread's next entry of the schedule
  const std::int64_t filled;  // where it has filled the pool the first time
  bool stopping = false;
  std::exception_ptr failure;  // of the decoding thread, which has ended
  std::vector<FrameStream*> running;
  std::shared_ptr<c10::Event> last_gather;  // of a card; null: none yet
  std::map<int, StageSeconds> stages;       // by script

  WaitMeter waits;
  std::thread decoder;
};

TrainingLoader::Impl::Impl(std::vector<TrainingClip> clips, const Config& config, torch::Device on,
                           std::int64_t first_step, const LoaderOptions& options)
    : device(on),
      sampler(spans_of(clips), sampler_config(config)),
      color(parse_network_color(config.data.color)),
      scale(config.model.scale),
      held(held_segments(sampler)),
      first_needed(sampler.first_resident(first_step)),
      to_decode(first_needed),
      filled(first_needed + sampler.resident_segments()),
      waits(options.wait_window) {
  const int segment_frames = sampler.config().segment_frames;
  std::size_t bytes = 0;
  std::int64_t usable_frames = 0, distinct = 0, slots = 0;
  std::map<int, ClipPair> pairs;
  for (const TrainingClip& clip : clips) {
    usable_frames += clip.span.end - clip.span.begin;
    pairs.emplace(clip.span.script, clip.pair);
  }
  for (const auto& [script, pair] : pairs) {
    distinct += sampler.distinct_segments(script);
    const int frames = sampler.most_segments(script, held) * segment_frames;
    slots += frames;
    bytes += static_cast<std::size_t>(frames) * ScriptPool::bytes_per_frame(pair);
  }
  const FramePool::Place place = options.place.value_or(choose_place(device, bytes));
  for (const auto& [script, pair] : pairs) {
    pools.try_emplace(script, pair, sampler.most_segments(script, held), segment_frames, place, device,
                      config.data.overrides);
  }
  description = fmt::format("{} frames in {} segments of up to {}; pool of {} frames {} ({})", usable_frames, distinct,
                            segment_frames, slots, name_of(pools.begin()->second.place()), format_bytes(bytes));
  decoder = std::thread([this] { decode(); });
}

TrainingLoader::Impl::~Impl() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
    for (FrameStream* stream : running) stream->cancel();
    changed.notify_all();
  }
  decoder.join();
  if (!last_gather) return;
  try {
    last_gather->synchronize();  // the memory it reads is freed next
  } catch (const c10::Error&) {
    // A card that has failed: the consumer has its error already.
  }
}

void TrainingLoader::Impl::decode() {
  try {
    while (const auto turn = wait_turn()) {
      const Segment segment = sampler.segment(*turn);
      ScriptPool& pool = pools.at(segment.script);
      std::optional<ScriptPool::Claim> claim;
      {
        std::lock_guard lock(mutex);
        claim = pool.claim(segment.begin, segment.index, first_needed);
        if (!claim) changed.notify_all();
      }
      if (claim && !fill(pool, *claim, segment)) return;
    }
  } catch (...) {
    std::lock_guard lock(mutex);
    failure = std::current_exception();
    changed.notify_all();
  }
}

// Waits until the next entry of the schedule, or the first one that is still needed, may be decoded; nullopt: the
// loader ends.
std::optional<std::int64_t> TrainingLoader::Impl::wait_turn() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return stopping || to_decode < first_needed + held; });
  if (stopping) return std::nullopt;
  const std::int64_t turn = std::max(to_decode, first_needed);
  to_decode = turn + 1;
  return turn;
}

// False when the loader ends.
bool TrainingLoader::Impl::fill(ScriptPool& pool, const ScriptPool::Claim& claim, const Segment& segment) {
  if (claim.reused) wait_for_gathers();
  FrameStream targets(pool.pair().target, segment.begin, segment.frames);
  FrameStream inputs(pool.pair().input, segment.begin, segment.frames);
  {
    std::lock_guard lock(mutex);
    if (stopping) return false;
    running = {&targets, &inputs};
  }
  const auto forget_streams = [&](StageSeconds spent, bool complete) {
    std::lock_guard lock(mutex);
    running.clear();
    StageSeconds& stage = stages[segment.script];
    stage.decode += spent.decode;
    stage.store += spent.store;
    stage.frames += spent.frames;
    if (complete) pool.publish(claim.slot);
    changed.notify_all();
  };
  StageSeconds spent;
  try {
    Stopwatch watch;
    for (int offset = 0; offset < segment.frames; ++offset) {
      const std::optional<Frame> target = targets.next(), input = inputs.next();
      spent.decode += watch.lap();
      if (!target || !input) break;  // cancelled
      pool.store(claim.slot, offset, *target, *input);
      spent.store += watch.lap();
      ++spent.frames;
    }
  } catch (...) {
    forget_streams(spent, false);
    throw;
  }
  const bool complete = spent.frames == segment.frames;
  forget_streams(spent, complete);
  return complete;
}

// A slot whose entries are over can still be read by kernels that were launched for them.
void TrainingLoader::Impl::wait_for_gathers() {
  std::shared_ptr<c10::Event> event;
  {
    std::lock_guard lock(mutex);
    event = last_gather;
  }
  if (event) event->synchronize();
}

// The slot of the segment. Throws the decoder's error only here, when the segment will never come: at which step a bad
// frame ends a run does not depend on how far ahead it was found.
int TrainingLoader::Impl::wait_ready(std::unique_lock<std::mutex>& lock, const Segment& segment) {
  const ScriptPool& pool = pools.at(segment.script);
  std::optional<int> slot;
  changed.wait(lock, [&] { return (slot = pool.find(segment.begin, segment.index)) || failure; });
  if (!slot) std::rethrow_exception(failure);
  return *slot;
}

// Expects the lock; `asked`: when the segments that are there now were asked for.
void TrainingLoader::Impl::watch_waits(Clock::time_point asked) {
  const Clock::time_point now = Clock::now();
  waits.add(asked, now);
  if (!waits.started() && to_decode > filled) waits.start(now);
  const std::optional<double> share = waits.share(now);
  if (!share || *share <= kMuchWaiting) return;
  const auto total = [](const auto& entry) { return entry.second.decode + entry.second.store; };
  const auto slowest = std::ranges::max_element(stages, {}, total);
  if (slowest == stages.end()) return;
  const auto& [script, spent] = *slowest;
  const double frames_per_second = static_cast<double>(spent.frames) / std::max(1e-9, spent.decode + spent.store);
  const std::string stage =
      spent.decode >= spent.store
          ? "the script (decoding and filtering) is the slow stage: make it simpler, or raise data.reuse"
          : "copying frames into the pool is the slow stage: raise data.reuse";
  log::warn_once("data-wait",
                 fmt::format("training waits for frames {:.0f} % of the time; {}, {:.1f} frames per second: {}",
                             *share * 100, pools.at(script).pair().input.name(), frames_per_second, stage));
}

void TrainingLoader::Impl::add_jobs(JobList& jobs, const Sample& sample, int slot, const Segment& segment, float* input,
                                    float* target) const {
  const ScriptPool& pool = pools.at(segment.script);
  const SamplerConfig& config = sampler.config();
  const int crop = config.crop_px;
  const int offset = static_cast<int>(sample.frame - segment.begin);
  for (int t = 0; t < config.window; ++t) {
    float* out = input + static_cast<std::ptrdiff_t>(t) * channels(color) * crop * crop;
    jobs.add(pool.input(slot, offset + t * config.frame_step), sample.x, sample.y, crop, sample.orientation, out);
  }
  const int middle = offset + config.window / 2 * config.frame_step;
  jobs.add(pool.target(slot, middle), sample.x * scale, sample.y * scale, crop * scale, sample.orientation, target);
}

void TrainingLoader::Impl::mark_gathers() {
  if (device.is_cpu()) return;
  auto event = std::make_shared<c10::Event>(device.type());
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  std::lock_guard lock(mutex);
  last_gather = std::move(event);
}

TrainingLoader::TrainingLoader(std::vector<TrainingClip> clips, const Config& config, torch::Device device,
                               std::int64_t first_step, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(clips), config, device, first_step, options)) {}

TrainingLoader::~TrainingLoader() = default;

Batch TrainingLoader::next(std::int64_t step, int first, int count) {
  Impl& my = *impl_;
  const SamplerConfig& config = my.sampler.config();
  const int window = config.window, colors = channels(my.color), crop = config.crop_px, big = crop * my.scale;
  const auto options = torch::dtype(torch::kFloat32).device(my.device);
  Batch batch;
  batch.input = window == 1 ? torch::empty({count, colors, crop, crop}, options)
                            : torch::empty({count, window, colors, crop, crop}, options);
  batch.target = torch::empty({count, colors, big, big}, options);

  JobList jobs(my.color);
  {
    const Clock::time_point asked = Clock::now();
    std::unique_lock lock(my.mutex);
    my.first_needed = std::max(my.first_needed, my.sampler.first_resident(step));
    my.changed.notify_all();
    for (int i = 0; i < count; ++i) {
      const Sample sample = my.sampler.sample(step, first + i);
      const Segment segment = my.sampler.segment(sample.segment);
      const int slot = my.wait_ready(lock, segment);
      my.add_jobs(jobs, sample, slot, segment, batch.input.data_ptr<float>() + i * batch.input.stride(0),
                  batch.target.data_ptr<float>() + i * batch.target.stride(0));
    }
    my.watch_waits(asked);
  }
  jobs.run(my.device);
  my.mark_gathers();
  return batch;
}

double TrainingLoader::take_wait_seconds() {
  return impl_->waits.take_seconds();
}

std::string TrainingLoader::describe() const {
  return impl_->description;
}

}  // namespace reelgrad
