#pragma once
#include <VapourSynth4.h>

#include <string>

#include "reelgrad/clip/gpu_frames.h"

namespace reelgrad {

// Whether a core can hand over frames in a card's memory.
struct CardSupport {
  bool usable = false;
  CardId card{};
  std::string name;     // of the card
  std::string why_not;  // when not
};

// Sees to it that the core will make frames on `card` when it makes any on a card, which it must not have done yet.
CardSupport use_card(const VSAPI* api, VSCore* core, const CardId& card);

// Why frames that a core has made on a card cannot be handed over to `card`; empty: they can. Starts Vulkan in this
// core, which a core without such frames does not need.
std::string export_refusal(const VSAPI* api, VSCore* core, const CardId& card);

}  // namespace reelgrad
