#include <charconv>

#include "reelgrad/engine/engine.h"

namespace reelgrad {

std::optional<int> parse_overlap(std::string_view text) {
  if (text == "auto") return kMeasuredOverlap;
  if (text == "exact") return kExactOverlap;
  int pixels = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, pixels);
  if (error != std::errc() || rest != end || pixels < 0 || pixels > kMostOverlap_px) return std::nullopt;
  return pixels;
}

}  // namespace reelgrad
