#include "reelgrad/config/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"

namespace reelgrad {
namespace {

constexpr std::uint32_t kAfterTheFile = std::numeric_limits<std::uint32_t>::max();

// "data.script[0].path" -> "data.script[0]" -> "data.script" -> "data" -> ""
std::string parent(const std::string& key) {
  const std::size_t cut = key.find_last_of(".[");
  return cut == std::string::npos ? "" : key.substr(0, cut);
}

}  // namespace

void Source::note_line(const std::string& key, std::uint32_t line) {
  for (std::string outer = key; !outer.empty(); outer = parent(outer))
    if (settings_.contains(outer)) return;
  if (line > 0) lines_.emplace(key, line);
}

void Source::note_setting(const std::string& key, std::string_view value) {
  settings_[key] = value;
  lines_.erase(key);
}

bool Source::has_within(const std::string& section) const {
  const auto inner = settings_.lower_bound(section + ".");
  return has(section) || (inner != settings_.end() && inner->first.starts_with(section + "."));
}

const std::string* Source::setting(const std::string& key) const {
  const auto found = settings_.find(key);
  return found == settings_.end() ? nullptr : &found->second;
}

Source::Place Source::place_of(const std::string& key) const {
  for (std::string outer = key; !outer.empty(); outer = parent(outer)) {
    if (const std::string* value = setting(outer)) return {kAfterTheFile, fmt::format("--set {}={}", outer, *value)};
    if (const auto line = lines_.find(outer); line != lines_.end()) {
      return {line->second, fmt::format("{}:{}", name_, line->second)};
    }
    // A section that only a setting opened.
    const auto inner = settings_.lower_bound(outer + ".");
    if (inner != settings_.end() && inner->first.starts_with(outer + ".") && outer == key) {
      return {kAfterTheFile, fmt::format("--set {}={}", inner->first, inner->second)};
    }
  }
  return {0, name_};
}

void Source::report(const std::string& key, std::string_view text) {
  const Place place = place_of(key);
  problems_.push_back({place.line, fmt::format("{}: {}: {}", place.text, key, text)});
}

void Source::warn(const std::string& key, std::string_view text) {
  warnings_.push_back(fmt::format("{}: {}: {}", place_of(key).text, key, text));
}

void Source::throw_problems() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  std::ranges::stable_sort(sorted, {}, &Problem::line);
  std::vector<std::string> lines;
  for (const Problem& problem : sorted) lines.push_back(problem.text);
  fail_usage(join(lines, "\n"));
}

std::string hint(std::string_view word, std::span<const std::string> known) {
  if (const auto near = nearest(word, known)) return fmt::format(" (did you mean \"{}\"?)", *near);
  return fmt::format(" (known: {})", join(known, ", "));
}

}  // namespace reelgrad
