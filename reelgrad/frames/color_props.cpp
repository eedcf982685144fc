#include "reelgrad/frames/color_props.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"

namespace reelgrad {
namespace {

struct Named {
  std::string_view name;
  int value;
};

constexpr Named kMatrices[] = {{"rgb", 0},  {"709", 1}, {"fcc", 4},  {"470bg", 5},
                               {"170m", 6}, {"601", 6}, {"240m", 7}, {"2020ncl", 9}};
constexpr Named kRanges[] = {{"limited", 0}, {"full", 1}};
constexpr Named kChromaLocations[] = {{"left", 0}, {"center", 1},      {"top_left", 2},
                                      {"top", 3},  {"bottom_left", 4}, {"bottom", 5}};
constexpr Named kNetworkColors[] = {{"rgb", static_cast<int>(NetworkColor::rgb)},
                                    {"gray", static_cast<int>(NetworkColor::gray)},
                                    {"yuv444", static_cast<int>(NetworkColor::yuv444)}};
constexpr std::string_view kMatrixWords =
    "rgb, 709, fcc, 470bg, 170m (or 601), 240m, 2020ncl, or their numbers 0, 1, 4, 5, 6, 7, 9";

template <std::size_t n>
std::optional<int> find_named(const Named (&table)[n], std::string_view name) {
  for (const Named& entry : table)
    if (entry.name == name) return entry.value;
  return std::nullopt;
}

template <std::size_t n>
std::string names_of(const Named (&table)[n]) {
  std::string names;
  for (const Named& entry : table) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

// The value an override asks for; nullopt: "auto".
template <std::size_t n>
std::optional<int> overridden(const Named (&table)[n], const std::string& name, std::string_view key) {
  if (name == "auto") return std::nullopt;
  if (const auto value = find_named(table, name)) return value;
  fail_usage(fmt::format("data.{}: \"{}\" is not known, allowed: auto, {}", key, name, names_of(table)));
}

std::optional<int> overridden_matrix(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (const auto value = find_named(kMatrices, name)) return value;
  for (const Named& entry : kMatrices)
    if (std::to_string(entry.value) == name) return entry.value;
  fail_usage(fmt::format("data.matrix_in: \"{}\" is not known, allowed: auto, {}", name, kMatrixWords));
}

int guess_matrix(int height) {
  return height >= 720 ? 1 : 6;
}

bool convertible(int matrix) {
  for (const Named& entry : kMatrices)
    if (entry.value == matrix && matrix != 0) return true;
  return false;
}

void warn_of_guess(const ColorProps& props, int height, const std::string& clip_name, std::int64_t frame) {
  const std::string state = props.matrix < 0 ? "has no `_Matrix`" : "has `_Matrix` = 2 (unspecified)";
  const std::string guess = height >= 720 ? "BT.709, usual from 720 lines on" : "BT.601, usual below 720 lines";
  // Once a file: "a.vpy, output 0" and "a.vpy, output 1" are one.
  log::warn_once("matrix:" + clip_name.substr(0, clip_name.find(", ")),
                 fmt::format("{}: frame {} {}: its colours are read as {}. Set the property in the script, or "
                             "data.matrix_in = \"{}\" in the config (matrix_in for apply and the plugin)",
                             clip_name, frame, state, guess, height >= 720 ? "709" : "170m"));
}

int resolve_matrix(const VideoFormat& format, const ColorProps& props, int height, const ColorOverrides& overrides,
                   const std::string& clip_name, std::int64_t frame) {
  if (format.family == ColorFamily::rgb) return 0;  // has none, whatever else is said
  const std::optional<int> wanted = overridden_matrix(overrides.matrix_in);
  const int matrix = wanted.value_or(props.matrix);
  if (convertible(matrix)) return matrix;
  if (format.family == ColorFamily::gray) return guess_matrix(height);  // matters only when R'G'B' becomes its Y'
  if (wanted)
    fail_usage(fmt::format("{}: data.matrix_in = \"{}\" does not fit its format {}; allowed: auto, {}", clip_name,
                           overrides.matrix_in, format.name(), kMatrixWords));
  if (matrix < 0 || matrix == 2) {
    warn_of_guess(props, height, clip_name, frame);
    return guess_matrix(height);
  }
  fail_usage(
      fmt::format("{}: frame {} of format {} has `_Matrix` = {}, which cannot be converted; say what it really is "
                  "with data.matrix_in, allowed: {}",
                  clip_name, frame, format.name(), matrix, kMatrixWords));
}

}  // namespace

ColorSpec resolve_color(const VideoFormat& format, const ColorProps& props, int height, const ColorOverrides& overrides,
                        const std::string& clip_name, std::int64_t frame) {
  ColorSpec color;
  color.matrix = resolve_matrix(format, props, height, overrides, clip_name, frame);
  const int assumed_range = format.family == ColorFamily::rgb ? 1 : 0;
  const int range =
      overridden(kRanges, overrides.range_in, "range_in").value_or(props.range < 0 ? assumed_range : props.range);
  color.full_range = range == 1;
  const int location =
      overridden(kChromaLocations, overrides.chromaloc_in, "chromaloc_in").value_or(props.chroma_location);
  color.chroma_location = location >= 0 && location <= 5 ? location : 0;
  return color;
}

NetworkColor parse_network_color(const std::string& name) {
  if (const auto value = find_named(kNetworkColors, name)) return static_cast<NetworkColor>(*value);
  fail_usage(fmt::format("color \"{}\" is not known, allowed: {}", name, names_of(kNetworkColors)));
}

std::string to_string(NetworkColor color) {
  for (const Named& entry : kNetworkColors)
    if (entry.value == static_cast<int>(color)) return std::string(entry.name);
  fail("a network colour outside its enumeration");
}

}  // namespace reelgrad
