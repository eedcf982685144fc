#include "reelgrad/base/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/text.h"

namespace reelgrad::console {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{50};
constexpr std::string_view kEraseLine = "\r\x1b[K";

struct State {
  std::mutex mutex;
  std::string live;  // what stands on the live line, empty: none
};

// Never destroyed: threads may still print while the process exits.
State& state() {
  static State& instance = *new State;
  return instance;
}

// One write() where possible, so that lines of several processes do not mix. Nobody can be told when stderr fails.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// Cut to the terminal's width (code points; a wrapped live line could not be erased).
std::string_view fit(std::string_view text, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts_code_point = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts_code_point && ++used > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

bool stderr_is_terminal() {
  static const bool value = ::isatty(STDERR_FILENO) == 1;
  return value;
}

bool use_color() {
  static const bool value = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    return stderr_is_terminal() && !(no_color && *no_color) && !(term && std::string_view(term) == "dumb");
  }();
  return value;
}

std::FILE* take_stdout() {
  std::fflush(stdout);
  const int data = ::dup(STDOUT_FILENO);
  if (data < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) fail("standard output: " + errno_name(errno));
  std::FILE* file = ::fdopen(data, "wb");
  if (!file) fail("standard output: " + errno_name(errno));
  return file;
}

void print_line(std::string_view line) {
  std::lock_guard lock(state().mutex);
  const std::string& live = state().live;
  if (live.empty()) {
    write_all(fmt::format("{}\n", line));
  } else {
    write_all(fmt::format("{}{}\n{}", kEraseLine, line, live));
  }
}

Progress::Progress(std::chrono::milliseconds plain_interval)
    : plain_interval_(plain_interval), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  std::lock_guard lock(state().mutex);
  if (state().live.empty()) return;
  state().live.clear();
  write_all(kEraseLine);
}

void Progress::update(std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  const bool first = last_ == std::chrono::steady_clock::time_point{};
  const auto interval = stderr_is_terminal() ? kRedrawInterval : plain_interval_;
  // Off a terminal the first line also waits, so that short work prints none.
  const auto since = first && !stderr_is_terminal() ? start_ : last_;
  if (now - since < interval) return;
  last_ = now;
  if (!stderr_is_terminal()) return print_line(text);
  std::lock_guard lock(state().mutex);
  state().live = fit(text, terminal_columns() - 1);
  write_all(fmt::format("{}{}", kEraseLine, state().live));
}

void Progress::update(std::string_view what, std::int64_t done, std::int64_t total, std::string_view unit) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const double rate = elapsed.count() > 0 ? static_cast<double>(done) / elapsed.count() : 0;
  std::string text = fmt::format("{} {}", what, done);
  if (total > 0) text += fmt::format("/{} ({}%)", total, 100 * done / total);
  text += fmt::format(", {:.3g} {}", rate, unit);
  if (total > 0 && rate > 0) {
    text +=
        fmt::format(", {} left", format_duration(static_cast<double>(std::max<std::int64_t>(total - done, 0)) / rate));
  }
  update(text);
}

}  // namespace reelgrad::console
