#include "reelgrad/data/segment_decoder.h"

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/data/content_reader.h"
#include "reelgrad/data/wait_meter.h"

namespace reelgrad {
namespace {

using Clock = WaitMeter::Clock;

constexpr double kMuchWaiting = 0.2;  // of the time
constexpr int kSlotsForAllPools = 8;

// One frame crosses nothing. Images follow each other by chance, and a sample's place is drawn for the very
// image: none is left out.
ContentOptions content_options(const TrainingClip& clip, const Config& config) {
  const DataConfig& data = config.data;
  return {sampler_config(config).input_frames() == 1 ? SceneCuts::off : parse_scene_cuts(data.scene_cuts),
          data.skip_duplicates && !clip.images};
}

int scripts_in(const std::vector<TrainingClip>& clips) {
  std::set<int> scripts;
  for (const TrainingClip& clip : clips) scripts.insert(clip.span.script);
  return static_cast<int>(scripts.size());
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

// Two a script: while one segment's last frames are on their way, the next one's first are asked for. Sources that
// decode in order keep a few positions (BestSource: four), and more than a few scripts at once only fight for the
// cores.
int decoder_count(int scripts) {
  return std::clamp(2 * scripts, 2, 8);
}

FramePool::Place choose_place(torch::Device device, std::size_t pool_bytes, std::optional<std::size_t> given_free) {
  if (device.is_cpu()) return FramePool::Place::host;
  std::size_t free_bytes = given_free.value_or(0);
  if (!given_free) {
    at::globalContext().lazyInitDevice(device.type());
    free_bytes = at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first;
  }
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

// Where the decoding threads spend their time.
struct StageSeconds {
  double decode = 0, store = 0;
  std::int64_t frames = 0;
};

class Stopwatch {
 public:
  double lap() {
    const Clock::time_point now = Clock::now();
    return seconds_between(std::exchange(last_, now), now);
  }

 private:
  Clock::time_point last_ = Clock::now();
};

// Time in which at least one of several threads was at work.
class BusyClock {
 public:
  void enter() {
    if (active_++ == 0) since_ = Clock::now();
  }
  void leave() {
    if (--active_ == 0) seconds_ += seconds_between(since_, Clock::now());
  }
  double seconds() const { return seconds_ + (active_ > 0 ? seconds_between(since_, Clock::now()) : 0); }

 private:
  int active_ = 0;
  Clock::time_point since_;
  double seconds_ = 0;
};

}  // namespace

struct SegmentDecoder::Impl {
  Impl(const std::vector<TrainingClip>& clips, const Config& config, const Sampler& sampler, torch::Device on,
       std::int64_t first_step, const LoaderOptions& options);
  ~Impl();
  void start();  // apart from the constructor: whatever it throws, the destructor ends the threads

  class Running;
  struct Turn {
    Segment segment;
    ScriptPool& pool;
    ScriptPool::Claim claim;
  };
  // Stands for the segment's entries of the schedule up to `last_use`; later ones are decoded again.
  struct Failure {
    std::exception_ptr error;
    std::int64_t last_use = 0;
  };

  // --- Decoding threads ---
  void decode();
  std::optional<Turn> next_turn();
  bool may_decode() const;
  void fill(const Turn& turn);
  void end_turn(const Turn& turn, StageSeconds spent, std::optional<SegmentContent> found, std::exception_ptr failure);

  // --- Consumer ---
  std::exception_ptr failure_of(const Segment& segment) const;
  void watch_waits();
  void say_rates(Clock::time_point now);
  void warn_of_waits(double share);

  torch::Device device;
  const Sampler& sampler;
  std::map<int, ContentOptions> content;  // what is looked for, by script
  int held;                               // entries of the schedule, see held_segments()
  std::map<int, ScriptPool> pools;        // by script
  std::string description;

  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t first_needed;  // first resident entry of the step that was asked for last
  std::int64_t to_decode;     // the next entry of the schedule that is decoded
  const std::int64_t filled;  // where the pool has been filled the first time
  bool stopping = false;
  std::exception_ptr broken;                                 // a decoding thread itself has ended
  std::map<std::pair<int, std::int64_t>, Failure> failures;  // by script and first frame of the segment
  std::vector<FrameStream*> running;
  std::shared_ptr<c10::Event> last_read;  // of a card; null: none yet
  std::map<int, StageSeconds> stages;     // by script
  BusyClock busy;

  WaitMeter waits;
  std::int64_t step = 0, watched_step = 0;  // the consumer's, and where watching began
  Clock::time_point watched_since;
  double waited_seconds = 0;  // since then
  bool rates_said = false;
  const int threads;
  std::vector<std::thread> decoders;
};

// Streams that the destructor cancels.
class SegmentDecoder::Impl::Running {
 public:
  Running(Impl& decoder, std::vector<FrameStream*> streams) : decoder_(decoder), streams_(std::move(streams)) {
    std::lock_guard lock(decoder_.mutex);
    for (FrameStream* stream : streams_) {
      decoder_.running.push_back(stream);
      if (decoder_.stopping) stream->cancel();
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    std::lock_guard lock(decoder_.mutex);
    for (FrameStream* stream : streams_) std::erase(decoder_.running, stream);
  }

 private:
  Impl& decoder_;
  std::vector<FrameStream*> streams_;
};

SegmentDecoder::Impl::Impl(const std::vector<TrainingClip>& clips, const Config& config, const Sampler& source,
                           torch::Device on, std::int64_t first_step, const LoaderOptions& options)
    : device(on),
      sampler(source),
      held(held_segments(sampler)),
      first_needed(sampler.first_resident(first_step)),
      to_decode(first_needed),
      filled(first_needed + sampler.resident_segments()),
      waits(options.wait_window),
      threads(options.decoders > 0 ? options.decoders : decoder_count(scripts_in(clips))) {
  const int segment_frames = sampler.config().segment_frames;
  std::int64_t usable_frames = 0, distinct = 0;
  std::map<int, ClipPair> pairs;
  for (const TrainingClip& clip : clips) {
    usable_frames += clip.span.end - clip.span.begin;
    pairs.emplace(clip.span.script, clip.pair);
    content.emplace(clip.span.script, content_options(clip, config));
  }
  const auto slots_of = [&](int script) { return sampler.most_segments(script, held); };
  std::size_t bytes = 0, largest = 0;
  std::int64_t frames = 0;
  for (const auto& [script, pair] : pairs) {
    distinct += sampler.distinct_segments(script);
    frames += std::int64_t{slots_of(script)} * segment_frames;
    bytes += static_cast<std::size_t>(slots_of(script)) * segment_frames * ScriptPool::bytes_per_frame(pair);
    largest = std::max(largest, ScriptPool::largest_side_bytes(pair));
  }
  const FramePool::Place place = options.place ? *options.place : choose_place(device, bytes, options.free_bytes);
  // One for all: an event behind it is behind both sides of a pair.
  const std::shared_ptr<CardUploads> uploads =
      device.is_cuda() ? std::make_shared<CardUploads>(largest, kSlotsForAllPools, device) : nullptr;
  for (const auto& [script, pair] : pairs) {
    pools.try_emplace(script, pair, slots_of(script), segment_frames, place, device, config.data.overrides, uploads);
  }
  description = fmt::format("{} frames in {} segments of up to {}; pool of {} frames {} ({})", usable_frames, distinct,
                            segment_frames, frames, name_of(pools.begin()->second.place()), format_bytes(bytes));
}

// Fewer threads decode more slowly and change nothing else.
void SegmentDecoder::Impl::start() {
  try {
    for (int i = 0; i < threads; ++i) decoders.emplace_back([this] { decode(); });
  } catch (const std::system_error& error) {
    if (decoders.empty()) {
      throw Error(
          ErrorKind::out_of_memory,
          fmt::format("decoding: the system starts no thread, for want of memory or by a limit (ulimit -v, -u): "
                      "{}",
                      error.what()));
    }
    log::warning(
        fmt::format("decoding: the system starts only {} of {} threads: {}", decoders.size(), threads, error.what()));
  }
}

SegmentDecoder::Impl::~Impl() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
    for (FrameStream* stream : running) stream->cancel();
    changed.notify_all();
  }
  for (std::thread& decoder : decoders) decoder.join();
  if (!last_read) return;
  try {
    last_read->synchronize();  // the memory it reads is freed next
  } catch (const c10::Error&) {
    // A card that has failed: the consumer has its error already.
  }
}

void SegmentDecoder::Impl::decode() {
  try {
    while (const auto turn = next_turn()) fill(*turn);
  } catch (...) {
    std::lock_guard lock(mutex);
    if (!broken) broken = std::current_exception();
    changed.notify_all();
  }
}

// Expects the lock. There is a slot for each entry that steps need; but another thread can still be filling one whose
// entry the consumer has left behind meanwhile.
bool SegmentDecoder::Impl::may_decode() const {
  if (to_decode >= first_needed + held) return false;
  const Segment next = sampler.segment(std::max(to_decode, first_needed));
  return pools.at(next.script).has_room(next.begin, first_needed);
}

// Waits until the next entry of the schedule that is not held yet may be decoded; nullopt: the decoder ends.
std::optional<SegmentDecoder::Impl::Turn> SegmentDecoder::Impl::next_turn() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || may_decode(); });
    if (stopping) return std::nullopt;
    const Segment segment = sampler.segment(std::max(to_decode, first_needed));
    to_decode = segment.index + 1;
    ScriptPool& pool = pools.at(segment.script);
    if (const auto claim = pool.claim(segment.begin, segment.index, first_needed)) {
      failures.erase({segment.script, segment.begin});
      busy.enter();
      return Turn{segment, pool, *claim};
    }
    changed.notify_all();  // it is held, and now for this entry too
  }
}

void SegmentDecoder::Impl::fill(const Turn& turn) {
  StageSeconds spent;
  std::optional<SegmentContent> found;
  try {
    // A slot whose entries are over can still be read by kernels that were launched for them.
    if (turn.claim.readers) turn.pool.overwrite_after(*turn.claim.readers);
    FrameStream targets(turn.pool.pair().target, turn.segment.begin, turn.segment.frames);
    FrameStream inputs(turn.pool.pair().input, turn.segment.begin, turn.segment.frames);
    const Running running_now(*this, {&targets, &inputs});
    ContentReader reader(turn.segment.frames, content.at(turn.segment.script), device);
    Stopwatch watch;
    while (spent.frames < turn.segment.frames) {
      const std::optional<Frame> target = targets.next(), input = inputs.next();
      spent.decode += watch.lap();
      if (!target || !input) break;  // cancelled
      turn.pool.store(turn.claim.slot, static_cast<int>(spent.frames), *target, *input);
      reader.add(*target, *input);
      spent.store += watch.lap();
      ++spent.frames;
    }
    if (spent.frames == turn.segment.frames) found = reader.content();
  } catch (...) {
    return end_turn(turn, spent, std::nullopt, std::current_exception());
  }
  end_turn(turn, spent, std::move(found), nullptr);
}

void SegmentDecoder::Impl::end_turn(const Turn& turn, StageSeconds spent, std::optional<SegmentContent> found,
                                    std::exception_ptr failure) {
  std::lock_guard lock(mutex);
  StageSeconds& stage = stages[turn.segment.script];
  stage.decode += spent.decode;
  stage.store += spent.store;
  stage.frames += spent.frames;
  busy.leave();
  if (failure) {
    failures[{turn.segment.script, turn.segment.begin}] = {failure, turn.pool.last_use(turn.claim.slot)};
  }
  turn.pool.end_fill(turn.claim.slot, std::move(found));
  changed.notify_all();
}

// Expects the lock. Null: the segment may still come.
std::exception_ptr SegmentDecoder::Impl::failure_of(const Segment& segment) const {
  const auto found = failures.find({segment.script, segment.begin});
  return found != failures.end() && found->second.last_use >= segment.index ? found->second.error : broken;
}

// Expects the lock. Looked at once a step: a step without waiting must cost nothing.
void SegmentDecoder::Impl::watch_waits() {
  const Clock::time_point now = Clock::now();
  if (!waits.started()) {
    if (to_decode <= filled) return;
    waits.start(now);
    watched_since = now;
    watched_step = step;
    waited_seconds = 0;
    return;
  }
  const std::optional<double> share = waits.share(now);
  if (!share) return;
  say_rates(now);
  if (*share > kMuchWaiting) warn_of_waits(*share);
}

// Once: how many frames a second the steps use up when nothing keeps them waiting, and how many come.
void SegmentDecoder::Impl::say_rates(Clock::time_point now) {
  if (rates_said || step == watched_step) return;
  rates_said = true;
  const SamplerConfig& config = sampler.config();
  const double frames_a_step = static_cast<double>(config.batch) / config.reuse;
  const double training_seconds = seconds_between(watched_since, now) - waited_seconds;
  std::int64_t frames = 0;
  for (const auto& [script, spent] : stages) frames += spent.frames;
  log::info(fmt::format("decoding: the run needs {:.1f} frames a second, the scripts give up to {:.1f}",
                        static_cast<double>(step - watched_step) * frames_a_step / std::max(1e-9, training_seconds),
                        static_cast<double>(frames) / std::max(1e-9, busy.seconds())));
}

void SegmentDecoder::Impl::warn_of_waits(double share) {
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
                             share * 100, pools.at(script).pair().input.name(), frames_per_second, stage));
}

SegmentDecoder::SegmentDecoder(const std::vector<TrainingClip>& clips, const Config& config, const Sampler& sampler,
                               torch::Device device, std::int64_t first_step, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(clips, config, sampler, device, first_step, options)) {
  impl_->start();
}

SegmentDecoder::~SegmentDecoder() = default;

void SegmentDecoder::begin_step(std::int64_t step) {
  std::lock_guard lock(impl_->mutex);
  impl_->step = step;
  impl_->first_needed = std::max(impl_->first_needed, impl_->sampler.first_resident(step));
  impl_->watch_waits();
  impl_->changed.notify_all();
}

SegmentDecoder::Held SegmentDecoder::wait_for(const Segment& segment) {
  Impl& my = *impl_;
  ScriptPool& pool = my.pools.at(segment.script);
  std::unique_lock lock(my.mutex);
  std::optional<int> slot = pool.find(segment.begin, segment.index);
  if (!slot) {
    const Clock::time_point asked = Clock::now();
    std::exception_ptr failure;
    my.changed.wait(lock, [&] {
      slot = pool.find(segment.begin, segment.index);
      if (slot) return true;
      failure = my.failure_of(segment);
      return failure != nullptr;
    });
    if (!slot) std::rethrow_exception(failure);
    const Clock::time_point now = Clock::now();
    my.waits.add(asked, now);
    my.waited_seconds += seconds_between(asked, now);
  }
  pool.begin_reading(*slot);
  return {pool, *slot, pool.stored(*slot)};
}

void SegmentDecoder::read_until(std::shared_ptr<c10::Event> event) {
  std::lock_guard lock(impl_->mutex);
  for (auto& [script, pool] : impl_->pools) pool.end_reading(event);
  impl_->last_read = std::move(event);
}

double SegmentDecoder::take_wait_seconds() {
  return impl_->waits.take_seconds();
}

bool SegmentDecoder::on_card() const {
  return std::ranges::any_of(impl_->pools,
                             [](const auto& item) { return item.second.place() == FramePool::Place::device; });
}

std::string SegmentDecoder::describe() const {
  return impl_->description;
}

}  // namespace reelgrad
