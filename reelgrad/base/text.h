#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reelgrad {

// The candidate closest to `word` by edit distance, if one is close enough to be a likely typing slip.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

// Edits that `text` is away from what `pattern` stands for, in which * is any text and ? any one character; 0: it
// matches.
std::size_t pattern_distance(std::string_view pattern, std::string_view text);

std::string format_duration(double seconds);     // "8 s", "3 min 20 s", "2 h 05 min"
std::string format_bytes(std::uintmax_t bytes);  // "812 B", "3.4 MiB"

// As a string literal of TOML and of Python alike: in double quotes, which \" and \\ escape, and \u000A for a control
// character.
std::string string_literal(std::string_view text);

// The words between the separators, of which there is one more than of those.
std::vector<std::string> split(std::string_view text, char separator);

// As a shell splits a line into words: blanks between them, quotes of both kinds and backslashes keep them. Throws
// usage naming `what` when a quote is not closed.
std::vector<std::string> shell_words(std::string_view text, std::string_view what);

std::string join(std::span<const std::string> words, std::string_view separator);

// A range of frames `a:b`, `a:`, `:b`: [begin, end). Values in (0, 1) with a decimal point are fractions of the clip
// ("0.8:"), negative ones count from its end.
struct FrameRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const FrameRange&) const = default;
};

// Throws usage naming `what` (an option or key) when the text is no range or lies outside `frames` frames.
FrameRange parse_frame_range(std::string_view text, std::int64_t frames, std::string_view what);
bool is_frame_range(std::string_view text);

}  // namespace reelgrad
