#include "reelgrad/doctor/card/child_words.h"

#include <fmt/format.h>
#include <string.h>

namespace reelgrad {

std::string last_line(std::string_view text) {
  const std::size_t end = text.find_last_not_of("\n\r ");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  const std::size_t start = text.find_last_of('\n');
  return std::string(start == std::string_view::npos ? text : text.substr(start + 1));
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("killed by signal {} (SIG{})", signal, name) : fmt::format("killed by signal {}", signal);
}

}  // namespace reelgrad
