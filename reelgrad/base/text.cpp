#include "reelgrad/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

// Optimal string alignment distance: insert, delete, replace, or swap of two neighbours cost 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = previous[j - 1] + (a[i - 1] != b[j - 1]);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    before.swap(previous);
    previous.swap(current);
  }
  return previous[b.size()];
}

// One end of a range as it is written: a frame number, or a fraction of the clip.
struct RangeEnd {
  bool is_fraction = false;
  std::int64_t frame = 0;
  double fraction = 0;
};

std::optional<RangeEnd> parse_range_end(std::string_view text) {
  RangeEnd end;
  const char* last = text.data() + text.size();
  if (text.find('.') == std::string_view::npos) {
    const auto [stop, error] = std::from_chars(text.data(), last, end.frame);
    if (error != std::errc{} || stop != last) return std::nullopt;
    return end;
  }
  end.is_fraction = true;
  const auto [stop, error] = std::from_chars(text.data(), last, end.fraction, std::chars_format::fixed);
  if (error != std::errc{} || stop != last || !(end.fraction > 0 && end.fraction < 1)) return std::nullopt;
  return end;
}

struct RangeText {
  std::optional<RangeEnd> begin, end;  // nullopt: not written
};

std::optional<RangeText> parse_range_text(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.size() == 1) return std::nullopt;
  RangeText range;
  const std::string_view begin = text.substr(0, colon), end = text.substr(colon + 1);
  if (!begin.empty() && !(range.begin = parse_range_end(begin))) return std::nullopt;
  if (!end.empty() && !(range.end = parse_range_end(end))) return std::nullopt;
  return range;
}

std::int64_t resolve(const RangeEnd& end, std::int64_t frames) {
  if (end.is_fraction) return std::llround(end.fraction * static_cast<double>(frames));
  return end.frame < 0 ? frames + end.frame : end.frame;
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  // A third of the letters may be wrong; short words are allowed one slip.
  const std::size_t limit = std::max<std::size_t>(1, word.size() / 3);
  std::optional<std::string> best;
  std::size_t best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    // Replacing every letter of a one-letter word is no typing slip.
    if (distance < best_distance && distance < std::max(word.size(), candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::size_t pattern_distance(std::string_view pattern, std::string_view text) {
  std::vector<std::size_t> previous(text.size() + 1), current(text.size() + 1);
  for (std::size_t j = 0; j <= text.size(); ++j) previous[j] = j;
  for (const char c : pattern) {
    const bool any_text = c == '*';
    current[0] = previous[0] + !any_text;
    for (std::size_t j = 1; j <= text.size(); ++j) {
      const std::size_t replace = previous[j - 1] + (c != '?' && c != text[j - 1]);
      current[j] =
          any_text ? std::min(previous[j], current[j - 1]) : std::min({previous[j] + 1, current[j - 1] + 1, replace});
    }
    previous.swap(current);
  }
  return previous[text.size()];
}

std::string format_duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {:02} s", total / 60, total % 60);
  return fmt::format("{} h {:02} min", total / 3600, total % 3600 / 60);
}

std::string format_bytes(std::uintmax_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 4> units{"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (value >= 1023.95 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string string_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (;;) {
    const std::size_t end = text.find(separator);
    words.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string> shell_words(std::string_view text, std::string_view what) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool blank = c == ' ' || c == '\t' || c == '\n';
    if (blank && !quote) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote) {
      quote = 0;
    } else if (!quote && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote) fail_usage(fmt::format("{} {}: the quote {} is not closed", what, text, quote));
  return words;
}

std::string join(std::span<const std::string> words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words.begin(), words.end(), separator));
}

bool is_frame_range(std::string_view text) {
  return parse_range_text(text).has_value();
}

FrameRange parse_frame_range(std::string_view text, std::int64_t frames, std::string_view what) {
  const auto written = parse_range_text(text);
  if (!written) {
    fail_usage(
        fmt::format("{}: \"{}\" is no range of frames, allowed: a:b, a: or :b (a included, b not; fractions such as "
                    "0.8: and negative numbers count too)",
                    what, text));
  }
  const FrameRange range{written->begin ? resolve(*written->begin, frames) : 0,
                         written->end ? resolve(*written->end, frames) : frames};
  if (range.begin < 0 || range.begin >= range.end || range.end > frames) {
    fail_usage(fmt::format("{}: \"{}\" is frames {} to {} (not included), but the clip has {} frames, 0 to {}", what,
                           text, range.begin, range.end, frames, frames - 1));
  }
  return range;
}

}  // namespace reelgrad
