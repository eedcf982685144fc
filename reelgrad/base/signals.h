#pragma once
#include <filesystem>
#include <utility>

namespace reelgrad {

// SIGINT and SIGTERM ask the running command to stop at the next safe place; a second one ends the process at once with
// exit code 130. Only the command line installs this.
void install_stop_signals();
bool stop_requested();

// What shall not outlive a process that is ended at once: an unfinished file is removed, a child is killed with its
// group. Thread-safe; beyond the first few dozen of a kind, which nothing here reaches, they are left.
class EndsWithUs {
 public:
  explicit EndsWithUs(const std::filesystem::path& unfinished);
  explicit EndsWithUs(int child_group);
  EndsWithUs(EndsWithUs&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  EndsWithUs& operator=(EndsWithUs&&) = delete;
  ~EndsWithUs();

  struct Slot;

 private:
  Slot* slot_;  // nullptr: none was free
};

}  // namespace reelgrad
