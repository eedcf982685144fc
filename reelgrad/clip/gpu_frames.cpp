#include "reelgrad/clip/gpu_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace reelgrad {

std::string card_text(const CardId& card) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < card.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", card[i]);
  }
  return text;
}

std::optional<CardId> parse_card(std::string_view text) {
  if (!text.starts_with("GPU-") && !text.starts_with("MIG-")) return std::nullopt;
  std::string digits(text.substr(4));
  std::erase(digits, '-');
  CardId card{};
  const bool hexadecimal = std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isxdigit(c); });
  if (digits.size() != 2 * card.size() || !hexadecimal) return std::nullopt;
  for (std::size_t i = 0; i < card.size(); ++i) {
    std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, card[i], 16);
  }
  return card;
}

}  // namespace reelgrad
