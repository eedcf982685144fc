#include "reelgrad/nn/architecture_tools.h"

#include <fmt/format.h>

#include "reelgrad/base/error.h"

namespace reelgrad {

int int_option(const NetworkSpec& spec, const std::string& name) {
  return std::stoi(spec.options.at(name));
}

bool bool_option(const NetworkSpec& spec, const std::string& name) {
  return spec.options.at(name) == "true";
}

const std::string& text_option(const NetworkSpec& spec, const std::string& name) {
  return spec.options.at(name);
}

void require_single_frame(const NetworkSpec& spec) {
  if (spec.window == 1) return;
  fail_usage(fmt::format("{} looks at a single frame: data.window = {}, allowed: 1", spec.arch, spec.window));
}

void require_window(const NetworkSpec& spec, int window) {
  if (spec.window == window) return;
  fail_usage(
      fmt::format("{} looks at {} frames: data.window = {}, allowed: {}", spec.arch, window, spec.window, window));
}

std::optional<NetworkColor> color_of_channels(std::int64_t channels) {
  if (channels == 1) return NetworkColor::gray;
  if (channels == 3) return NetworkColor::rgb;
  return std::nullopt;
}

std::optional<int> pixel_shuffle_scale(std::int64_t channels, std::int64_t out) {
  for (int scale = 1; scale <= 8; ++scale) {
    if (channels == out * scale * scale) return scale;
  }
  return std::nullopt;
}

}  // namespace reelgrad
