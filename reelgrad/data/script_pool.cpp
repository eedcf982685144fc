#include "reelgrad/data/script_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reelgrad/clip/interlaced.h"
#include "reelgrad/frames/color_props.h"

namespace reelgrad {
namespace {

FramePool make_pool(const Clip& clip, int slots, FramePool::Place place, torch::Device device,
                    const std::shared_ptr<CardUploads>& uploads) {
  const ClipInfo& info = clip.info();
  return FramePool(info.format, info.width, info.height, slots, place, device, uploads);
}

void store(FramePool& pool, int slot, const Frame& frame) {
  if (const auto picture = device_picture(frame)) {
    pool.store(slot, *picture);
  } else {
    pool.store(slot, frame.view());
  }
}

std::size_t frame_bytes(const Clip& clip) {
  const ClipInfo& info = clip.info();
  return FramePool::bytes_per_slot(info.format, info.width, info.height);
}

}  // namespace

ScriptPool::ScriptPool(ClipPair pair, int segments, int segment_frames, FramePool::Place place, torch::Device device,
                       ColorOverrides overrides, const std::shared_ptr<CardUploads>& uploads)
    : pair_(std::move(pair)),
      segment_frames_(segment_frames),
      overrides_(std::move(overrides)),
      input_(make_pool(pair_.input, segments * segment_frames, place, device, uploads)),
      target_(make_pool(pair_.target, segments * segment_frames, place, device, uploads)),
      input_color_(static_cast<std::size_t>(segments * segment_frames)),
      target_color_(input_color_.size()),
      slots_(static_cast<std::size_t>(segments)) {}

std::size_t ScriptPool::bytes_per_frame(const ClipPair& pair) {
  return frame_bytes(pair.input) + frame_bytes(pair.target);
}

std::size_t ScriptPool::largest_side_bytes(const ClipPair& pair) {
  return std::max(frame_bytes(pair.input), frame_bytes(pair.target));
}

std::optional<int> ScriptPool::find(std::int64_t begin, std::int64_t index) const {
  // A segment of an earlier entry does not count before the decoder has come to this one: it may be overwritten.
  const auto slot =
      std::ranges::find_if(slots_, [&](const Slot& s) { return s.begin == begin && s.ready && s.last_use >= index; });
  if (slot == slots_.end()) return std::nullopt;
  return static_cast<int>(slot - slots_.begin());
}

bool ScriptPool::has_room(std::int64_t begin, std::int64_t first_needed) const {
  return std::ranges::any_of(
      slots_, [&](const Slot& s) { return s.begin == begin || (!s.filling && s.last_use < first_needed); });
}

std::optional<ScriptPool::Claim> ScriptPool::claim(std::int64_t begin, std::int64_t index, std::int64_t first_needed) {
  const auto held = std::ranges::find(slots_, begin, &Slot::begin);
  if (held != slots_.end()) {
    held->last_use = index;
    return std::nullopt;
  }
  // A slot can still be being filled for an entry that no step has needed in the end.
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (!slot.filling && (!oldest || slot.last_use < oldest->last_use)) oldest = &slot;
  }
  TORCH_INTERNAL_ASSERT(oldest && oldest->last_use < first_needed, "has_room() said so");
  Claim claim{static_cast<int>(oldest - slots_.data()), std::move(oldest->readers)};
  *oldest = {.begin = begin, .last_use = index, .filling = true};
  return claim;
}

void ScriptPool::end_reading(const std::shared_ptr<c10::Event>& event) {
  for (Slot& slot : slots_) {
    if (std::exchange(slot.being_read, false)) slot.readers = event;
  }
}

std::shared_ptr<c10::Event> ScriptPool::stored(int slot) {
  std::shared_ptr<c10::Event>& event = slots_[static_cast<std::size_t>(slot)].stored;
  if (event && event->query()) event.reset();
  return event;
}

void ScriptPool::end_fill(int slot, std::optional<SegmentContent> content) {
  Slot& filled = slots_[static_cast<std::size_t>(slot)];
  if (!content) {
    filled = Slot{};
    return;
  }
  filled.filling = false;
  filled.ready = true;
  filled.content = *std::move(content);
  filled.stored = target_.stored();  // both sides cross on one stream
}

void ScriptPool::overwrite_after(const c10::Event& readers) {
  target_.overwrite_after(readers);
  if (input_.place() != target_.place()) input_.overwrite_after(readers);  // else the same stream, or the same wait
}

void ScriptPool::store(int slot, int offset, const Frame& target, const Frame& input) {
  const int at = frame_slot(slot, offset);
  warn_if_interlaced(pair_.target, target);
  warn_if_interlaced(pair_.input, input);
  target_color_[static_cast<std::size_t>(at)] = color_of(pair_.target, target);
  input_color_[static_cast<std::size_t>(at)] = color_of(pair_.input, input);
  reelgrad::store(target_, at, target);
  reelgrad::store(input_, at, input);
}

// The input was made from the target: where the matrix must be guessed from the height, both sides get the target's.
ColorSpec ScriptPool::color_of(const Clip& clip, const Frame& frame) const {
  const FrameView view = frame.view();
  return resolve_color(view.format, view.color, pair_.target.info().height, overrides_, clip.name(), frame.number());
}

ScriptPool::Side ScriptPool::side(const FramePool& pool, const std::vector<ColorSpec>& colors, int slot,
                                  int offset) const {
  const int at = frame_slot(slot, offset);
  return {pool.picture(at), pool.format(), colors[static_cast<std::size_t>(at)]};
}

}  // namespace reelgrad
