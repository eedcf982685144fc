#include "reelgrad/config/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <concepts>

#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"

namespace reelgrad {
namespace {

// Bounds are whole numbers or short decimals; integers are never shown with an exponent.
std::string bound(double value) {
  constexpr double kExact = 1e15;
  if (value == static_cast<double>(static_cast<std::int64_t>(value)) && value < kExact) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string allowed_interval(std::string_view what, const Field& field) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::string text(what);
  if (field.min != -kNone) text += fmt::format(" {} {}", field.above_min ? "above" : "from", bound(field.min));
  if (field.max != kNone) text += fmt::format(" {} {}", field.above_min ? "up to" : "to", bound(field.max));
  if (field.min != -kNone && field.max == kNone && !field.above_min) text += " up";
  return text;
}

struct WeightCollector {
  std::vector<std::pair<std::string_view, LossWeight>> weights;

  template <class T>
  void operator()(T& value, const Field& field) {
    if constexpr (std::derived_from<T, LossWeight>) weights.emplace_back(field.key, value);
  }
};

}  // namespace

std::vector<std::pair<std::string_view, LossWeight>> loss_weights(const LossConfig& config) {
  WeightCollector collector;
  LossConfig copy = config;
  fields(collector, copy);
  return collector.weights;
}

bool is_run_name(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && text.find('/') == std::string_view::npos;
}

bool is_device_name(std::string_view text) {
  if (text == "auto" || text == "cpu" || text == "cuda") return true;
  if (!text.starts_with("cuda:")) return false;
  const std::string_view number = text.substr(5);
  const bool digits = std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && !number.empty() && number.size() <= 3;
}

bool is_frames_or_empty(std::string_view text) {
  return text.empty() || is_frame_range(text);
}

bool is_checkpointing(std::string_view text) {
  if (text == "off" || text == "on" || text == "auto") return true;
  int segments = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), segments);
  return error == std::errc{} && end == text.data() + text.size() && segments >= 1 && segments <= 4096;
}

std::string allowed_integer(const Field& field) {
  return allowed_interval("an integer", field);
}
std::string allowed_integers(const Field& field) {
  return allowed_interval("an array of integers", field);
}
std::string allowed_number(const Field& field) {
  return allowed_interval("a number", field);
}

std::string allowed_string(const Field& field) {
  if (!field.choices.empty()) return "one of " + join(split(field.choices, '|'), ", ");
  return field.accepts ? std::string(field.accepted) : "a string";
}

Field field_of(const ArchitectureOption& option) {
  Field field{.key = option.name, .help = option.help};
  if (option.kind == "choice") field.choices = option.allowed;
  if (option.kind == "int" || option.kind == "ints") {
    const std::size_t dots = option.allowed.find("..");
    const char* end = option.allowed.data() + option.allowed.size();
    std::from_chars(option.allowed.data(), option.allowed.data() + dots, field.min);
    std::from_chars(option.allowed.data() + dots + 2, end, field.max);
  }
  return field;
}

}  // namespace reelgrad
