// Child processes by posix_spawn: no shell, own process group, only the named descriptors inherited.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reelgrad {

struct ProcessResult {
  int exit_code = 0;  // 128 + signal when killed by one; -1: unknown, where this process ignores SIGCHLD
  bool timed_out = false;
  std::string out, err;
};

// Runs to the end and captures both outputs. `argv[0]` is looked up on PATH. Throws when it cannot be started.
// `environment` entries ("NAME=value") are added to ours.
ProcessResult run_process(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                          const std::vector<std::string>& environment = {});

// A child that reads what we write to its standard input; its stderr is kept (the last 8 KiB).
class PipedProcess {
 public:
  explicit PipedProcess(const std::vector<std::string>& argv);
  PipedProcess(PipedProcess&&) noexcept;
  PipedProcess& operator=(PipedProcess&&) noexcept;
  ~PipedProcess();  // kills it when still running

  // Throws with the child's own words when it has died.
  void write(std::span<const std::byte> bytes);
  void close_input();
  int wait();  // exit code as in ProcessResult
  std::string error_output() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The program's path if `name` is on PATH (or is a path that exists), else empty.
std::string find_program(const std::string& name);

// The same in folders divided by colons instead of PATH's.
std::string find_program(const std::string& name, std::string_view folders);

constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";  // where PATH is not set, as under `env -i`

}  // namespace reelgrad
