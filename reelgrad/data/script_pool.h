// The decoded segments of one training script, both sides of each frame.
#pragma once
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/config/config.h"
#include "reelgrad/data/segment_content.h"
#include "reelgrad/frames/frame_pool.h"

namespace reelgrad {

// Bookkeeping calls (find, stored, claim, end_fill, …) are made under its owner's lock. store() and the sides need
// none: a slot is written only between claim() and end_fill(), and read only after find() has given it.
class ScriptPool {
 public:
  // `segments` slots of `segment_frames` frames. `uploads` carries both sides; null on the CPU only.
  ScriptPool(ClipPair pair, int segments, int segment_frames, FramePool::Place place, torch::Device device,
             ColorOverrides overrides, const std::shared_ptr<CardUploads>& uploads);

  static std::size_t bytes_per_frame(const ClipPair& pair);
  static std::size_t largest_side_bytes(const ClipPair& pair);

  const ClipPair& pair() const { return pair_; }
  FramePool::Place place() const { return input_.place(); }

  // The slot that holds the segment beginning at frame `begin` for entry `index` of the schedule; nullopt: not yet.
  std::optional<int> find(std::int64_t begin, std::int64_t index) const;
  // Of the slot's segment.
  const SegmentContent& content(int slot) const { return slots_[static_cast<std::size_t>(slot)].content; }
  // Readers of the slot on a card come after this event; null: it is over.
  std::shared_ptr<c10::Event> stored(int slot);

  // On a card: a reader of the slot's segment is about to be queued; the readers queued so far are over with `event`.
  void begin_reading(int slot) { slots_[static_cast<std::size_t>(slot)].being_read = true; }
  void end_reading(const std::shared_ptr<c10::Event>& event);

  // A segment that is held already is kept for entry `index` of the schedule too: nullopt. Else a slot to fill, whose
  // segment no entry from `first_needed` on needs. Schedule entries come in rising order.
  struct Claim {
    int slot = 0;
    std::shared_ptr<c10::Event> readers;  // of what it held, see overwrite_after(); null: none
  };
  std::optional<Claim> claim(std::int64_t begin, std::int64_t index, std::int64_t first_needed);
  // False while the slots that claim() could take are still being filled, for entries that no step has needed.
  bool has_room(std::int64_t begin, std::int64_t first_needed) const;
  // With its content it may be found from now on; without, its filling has failed and the slot is empty.
  void end_fill(int slot, std::optional<SegmentContent> content);
  // The last entry of the schedule that the slot's segment has been claimed for.
  std::int64_t last_use(int slot) const { return slots_[static_cast<std::size_t>(slot)].last_use; }

  // What is stored from now on comes after these readers. No lock is needed.
  void overwrite_after(const c10::Event& readers);

  // Frame `offset` of the slot's segment.
  void store(int slot, int offset, const Frame& target, const Frame& input);

  struct Side {
    PictureRef picture;
    VideoFormat format;
    ColorSpec color;
  };
  Side input(int slot, int offset) const { return side(input_, input_color_, slot, offset); }
  Side target(int slot, int offset) const { return side(target_, target_color_, slot, offset); }

 private:
  struct Slot {
    std::int64_t begin = -1;     // -1: empty
    std::int64_t last_use = -1;  // the last entry of the schedule that needs it
    bool filling = false, ready = false, being_read = false;
    std::shared_ptr<c10::Event> stored, readers;
    SegmentContent content;
  };

  int frame_slot(int slot, int offset) const { return slot * segment_frames_ + offset; }
  Side side(const FramePool& pool, const std::vector<ColorSpec>& colors, int slot, int offset) const;
  ColorSpec color_of(const Clip& clip, const Frame& frame) const;

  ClipPair pair_;
  int segment_frames_;
  ColorOverrides overrides_;
  FramePool input_, target_;
  std::vector<ColorSpec> input_color_, target_color_;
  std::vector<Slot> slots_;
};

}  // namespace reelgrad
