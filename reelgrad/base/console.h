// stderr as one shared place: whole lines, and on a terminal one live line below them that is redrawn. Thread-safe.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace reelgrad::console {

bool stderr_is_terminal();
bool use_color();  // a terminal, NO_COLOR unset, TERM not "dumb"

void print_line(std::string_view line);

// Takes standard output for data: what else prints there from now on (a script, a library) goes to stderr. Once a
// process.
std::FILE* take_stdout();

// Shows progress: on a terminal the live line, elsewhere a plain line at most every `plain_interval`.
class Progress {
 public:
  explicit Progress(std::chrono::milliseconds plain_interval = std::chrono::seconds(10));
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // removes the live line

  void update(std::string_view text);

  // "37/200 (18%), 12.3 fps, 13 s left", with the rate since construction.
  void update(std::string_view what, std::int64_t done, std::int64_t total, std::string_view unit);

 private:
  std::chrono::milliseconds plain_interval_;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace reelgrad::console
