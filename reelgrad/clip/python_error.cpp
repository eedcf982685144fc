#include "reelgrad/clip/python_error.h"

#include <fmt/format.h>

#include <optional>
#include <sstream>
#include <vector>

namespace reelgrad {
namespace {

struct Place {
  std::string file;
  std::string line;
  std::string text() const { return file + ":" + line; }
};

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

// `  File "sr2x.vpy", line 5, in <module>`
std::optional<Place> parse_place(const std::string& line) {
  static constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  const auto file = line.find(kFile);
  if (file == std::string::npos || line.find_first_not_of(' ') != file) return std::nullopt;
  const auto number = line.find(kLine, file);
  if (number == std::string::npos) return std::nullopt;
  const auto begin = number + kLine.size();
  return Place{line.substr(file + kFile.size(), number - file - kFile.size()),
               line.substr(begin, line.find_first_not_of("0123456789", begin) - begin)};
}

// VapourSynth's own Cython sources and Python's frozen modules tell a person nothing.
bool is_own_code(const Place& place) {
  return !place.file.ends_with(".pyx") && !place.file.starts_with("<");
}

}  // namespace

std::string shorten_python_error(std::string_view text, std::string_view script) {
  std::optional<Place> in_script, innermost;
  std::string message;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Traceback (most recent call last)")) {  // of several chained ones, the last counts
      in_script.reset();
      innermost.reset();
      message.clear();
      continue;
    }
    if (const auto place = parse_place(line)) {
      message.clear();
      if (!is_own_code(*place)) continue;
      innermost = place;
      if (place->file == script) in_script = place;
      continue;
    }
    const bool continues = !message.empty();
    if (innermost && (continues || (!line.empty() && line.front() != ' '))) message += line + "\n";
  }
  if (!innermost || message.empty()) return trimmed(text);
  if (!in_script || in_script->text() == innermost->text()) {
    return fmt::format("{}: {}", innermost->text(), trimmed(message));
  }
  return fmt::format("{}: {} (raised at {})", in_script->text(), trimmed(message), innermost->text());
}

bool is_memory_error(std::string_view text) {
  return text.find("MemoryError") != std::string_view::npos;
}

}  // namespace reelgrad
