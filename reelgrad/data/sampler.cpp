#include "reelgrad/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/philox.h"

namespace reelgrad {
namespace {

// Purposes of the Philox streams; the script's index is added to the first.
constexpr std::uint32_t kShuffle = 0x5348'0000;
constexpr std::uint32_t kDraw = 0x4452'0000;
constexpr int kRankShift = 48;  // samples fill the lower bits of the index: 2^48 of them last any run

struct Piece {
  std::int64_t begin = 0;
  int frames = 0;
};

// The last piece is moved back to full length rather than left short: its frames are decoded anyway.
void cut(const ClipSpan& span, int segment_frames, std::vector<Piece>& pieces) {
  const std::int64_t length = span.end - span.begin;
  if (length <= segment_frames) {
    pieces.push_back({span.begin, static_cast<int>(length)});
    return;
  }
  for (std::int64_t begin = span.begin; begin < span.end; begin += segment_frames) {
    pieces.push_back({std::min(begin, span.end - segment_frames), segment_frames});
  }
}

using Order = std::vector<std::uint32_t>;

Order shuffled(std::uint64_t seed, int script, std::int64_t epoch, std::size_t count) {
  PhiloxStream stream(seed, kShuffle + static_cast<std::uint32_t>(script), static_cast<std::uint64_t>(epoch));
  Order order(count);
  std::iota(order.begin(), order.end(), 0U);
  shuffle(order, stream);
  return order;
}

// The keys that say how far a sample reaches.
std::string reaching_keys(const SamplerConfig& config) {
  return fmt::format("data.window = {} with data.frame_step = {}{}", config.window, config.frame_step,
                     config.targets == 1 ? "" : fmt::format(" of {} neighbours a sample", config.targets));
}

}  // namespace

struct Sampler::Track {
  int script = 0;
  double weight = 1;
  PictureSize size;                                       // of the largest frame
  std::shared_ptr<const std::vector<PictureSize>> sizes;  // of each; null: all alike
  std::vector<Piece> pieces;

  PictureSize size_of(std::int64_t frame) const { return sizes ? sizes->at(static_cast<std::size_t>(frame)) : size; }

  // Scripts take their turns in the order of these times: an even interleaving of any weights.
  double time_of(std::int64_t ordinal) const { return (static_cast<double>(ordinal) + 0.5) / weight; }

  // Turns with time_of(ordinal) < time.
  std::int64_t turns_before(double time) const {
    auto turns = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(time * weight - 0.5)));
    while (turns > 0 && time_of(turns - 1) >= time) --turns;
    while (time_of(turns) < time) ++turns;
    return turns;
  }
};

// Orders of recent epochs: only speed, never a result, depends on it.
struct Sampler::Cache {
  std::mutex mutex;
  std::map<std::pair<int, std::int64_t>, Order> orders;  // by track and epoch

  std::size_t at(const Sampler& sampler, int track, std::int64_t epoch, std::size_t position) {
    std::lock_guard lock(mutex);
    const auto key = std::pair(track, epoch);
    if (const auto found = orders.find(key); found != orders.end()) return found->second[position];
    // The decoder runs ahead of the samples, by more than an epoch when clips are short: keep a few of each script.
    constexpr std::size_t kEpochs = 8;
    if (orders.size() >= kEpochs * sampler.tracks_.size()) orders.clear();
    const Track& drawn = sampler.tracks_[static_cast<std::size_t>(track)];
    return orders.emplace(key, shuffled(sampler.config_.seed, drawn.script, epoch, drawn.pieces.size()))
        .first->second[position];
  }
};

void check_span(const ClipSpan& span, const SamplerConfig& config) {
  const std::int64_t frames = span.end - span.begin;
  if (frames < config.window_reach()) {
    fail_usage(fmt::format("{}: {} frames can be trained on, but {} needs at least {}", span.name, frames,
                           reaching_keys(config), config.window_reach()));
  }
  if (span.width < config.crop_px || span.height < config.crop_px) {
    fail_usage(fmt::format("{}: the input is {}x{}, but data.crop_px = {}: allowed are 1 to {}", span.name, span.width,
                           span.height, config.crop_px, std::min(span.width, span.height)));
  }
}

Sampler::Sampler(std::vector<ClipSpan> spans, SamplerConfig config)
    : config_(config), cache_(std::make_unique<Cache>()) {
  if (config_.segment_frames < config_.window_reach()) {
    fail_usage(fmt::format("data.segment_frames: {} is less than the {} frames that {} reaches over",
                           config_.segment_frames, config_.window_reach(), reaching_keys(config_)));
  }
  for (const ClipSpan& span : spans) {
    check_span(span, config_);
    auto track = std::find_if(tracks_.begin(), tracks_.end(), [&](const Track& t) { return t.script == span.script; });
    if (track == tracks_.end()) {
      track = tracks_.insert(track, Track{span.script, span.weight, {span.width, span.height}, span.sizes, {}});
      total_weight_ += span.weight;
    }
    cut(span, config_.segment_frames, track->pieces);
  }
  if (tracks_.empty()) fail_usage("data.script: no clip to train on");
}

Sampler::Sampler(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Sampler::Turn Sampler::turn(std::int64_t index) const {
  // Up to time t, a script of weight w has had at most t w + 1/2 turns and at least t w - 1/2: so at this time not
  // more than `index` turns are over, and not many fewer.
  const double time = static_cast<double>(index - static_cast<std::int64_t>(tracks_.size())) / total_weight_;
  std::vector<std::int64_t> turns(tracks_.size(), 0);
  if (time > 0) {
    std::transform(tracks_.begin(), tracks_.end(), turns.begin(), [&](const Track& t) { return t.turns_before(time); });
  }
  for (std::int64_t over = std::accumulate(turns.begin(), turns.end(), std::int64_t{0});; ++over) {
    std::size_t next = 0;
    for (std::size_t t = 1; t < tracks_.size(); ++t) {
      if (tracks_[t].time_of(turns[t]) < tracks_[next].time_of(turns[next])) next = t;
    }
    if (over == index) return {static_cast<int>(next), turns[next]};
    ++turns[next];
  }
}

Segment Sampler::segment(std::int64_t index) const {
  const auto [track_index, ordinal] = turn(index);
  const Track& track = tracks_[static_cast<std::size_t>(track_index)];
  const auto count = static_cast<std::int64_t>(track.pieces.size());
  const Piece& piece =
      track.pieces[cache_->at(*this, track_index, ordinal / count, static_cast<std::size_t>(ordinal % count))];
  return {index, track.script, piece.begin, piece.frames};
}

std::int64_t Sampler::first_resident(std::int64_t step) const {
  return step * config_.batch / (std::int64_t{config_.segment_frames} * config_.reuse);
}

int Sampler::resident_segments() const {
  return std::max(1, config_.pool_frames / config_.segment_frames);
}

Sample Sampler::sample(std::int64_t step, int i, int rank) const {
  const std::uint64_t number =
      static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(config_.batch) + static_cast<std::uint64_t>(i);
  PhiloxStream stream(config_.seed, kDraw, (static_cast<std::uint64_t>(rank) << kRankShift) | number);
  const Segment drawn = segment(first_resident(step) + stream.below(resident_segments()));
  const Track& track = track_of(drawn.script);

  Sample sample;
  sample.segment = drawn.index;
  sample.draw = stream.next();
  sample.frame = drawn.begin + PhiloxStream::below(sample.draw, drawn.frames - config_.window_reach() + 1);
  const PictureSize size = track.size_of(sample.frame);
  sample.x = static_cast<int>(stream.below(size.width - config_.crop_px + 1));
  sample.y = static_cast<int>(stream.below(size.height - config_.crop_px + 1));
  if (config_.augment) {
    const auto orientation = stream.below(8);
    sample.orientation = {(orientation & 1) != 0, (orientation & 2) != 0, (orientation & 4) != 0};
  }
  return sample;
}

const Sampler::Track& Sampler::track_of(int script) const {
  return *std::find_if(tracks_.begin(), tracks_.end(), [&](const Track& track) { return track.script == script; });
}

int Sampler::distinct_segments(int script) const {
  return static_cast<int>(track_of(script).pieces.size());
}

int Sampler::most_segments(int script, int length) const {
  const Track& track = track_of(script);
  // m turns of this script span (m - 1) / w of time, in which each other script d has more than (m - 1) w_d / w - 1
  // turns; all of them together are at most `length`.
  const double others = static_cast<double>(length) + static_cast<double>(tracks_.size()) - 2;
  const int turns = 1 + static_cast<int>(std::floor(others * track.weight / total_weight_ + 1e-9));
  return std::min({turns, length, distinct_segments(script)});
}

}  // namespace reelgrad
