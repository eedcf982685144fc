// The one exception type of reelgrad. Thrown anywhere, translated only at the edges: main(), plugin callbacks, the
// engine's seam.
#pragma once
#include <stdexcept>
#include <string>

namespace reelgrad {

// What kind of failure this is; the value is the command line's exit code.
enum class ErrorKind {
  failed = 1,         // could not be done: missing or unreadable model or clip, I/O
  usage = 2,          // the command line, the configuration, or a clip that makes a configured value impossible
  no_device = 3,      // no CUDA card can be used where one was asked for, or torch cannot be opened
  out_of_memory = 4,  //
  interrupted = 130,  // Ctrl-C or SIGTERM; a checkpoint was saved
};

// The message says what was attempted, the offending value, what is allowed, and where (`file:line: key`).
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] inline void fail(const std::string& message) {
  throw Error(ErrorKind::failed, message);
}
[[noreturn]] inline void fail_usage(const std::string& message) {
  throw Error(ErrorKind::usage, message);
}

}  // namespace reelgrad
