#include "reelgrad/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "reelgrad/base/descriptor.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/signals.h"

namespace reelgrad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeptErrorBytes = 8 << 10;
constexpr int kPipeBytes = 1 << 20;  // a frame or so: fewer wake-ups
constexpr std::chrono::milliseconds kWaitInterval{5};
constexpr std::chrono::seconds kKillPatience{1};

struct Pipe {
  Descriptor read, write;
};

// Above the three standard descriptors, so that the child's dup2 never overwrites one that it still needs.
Descriptor lifted(Descriptor fd) {
  if (fd.get() > STDERR_FILENO) return fd;
  Descriptor high(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!high) fail(fmt::format("cannot duplicate a file descriptor: {}", errno_name(errno)));
  return high;
}

Pipe make_pipe() {
  std::array<int, 2> fds;
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) fail(fmt::format("cannot make a pipe: {}", errno_name(errno)));
  Descriptor read(fds[0]), write(fds[1]);
  return {lifted(std::move(read)), lifted(std::move(write))};
}

struct StandardDescriptors {
  int in = -1, out = -1, err = -1;  // -1: /dev/null
};

// posix_spawn's two attribute objects, destroyed together.
class SpawnSetup {
 public:
  explicit SpawnSetup(const StandardDescriptors& standard) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    connect(standard.in, STDIN_FILENO, O_RDONLY);
    connect(standard.out, STDOUT_FILENO, O_WRONLY);
    connect(standard.err, STDERR_FILENO, O_WRONLY);
    // Libraries of this process (Python, CUDA) open descriptors without O_CLOEXEC.
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);

    // Own process group: Ctrl-C reaches only us, and the whole group can be killed. Signals as in a fresh process.
    sigset_t signals;
    sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&signals, signal);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  void connect(int fd, int target, int null_mode) {
    if (fd >= 0) {
      ::posix_spawn_file_actions_adddup2(&actions_, fd, target);
    } else {
      ::posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", null_mode, 0);
    }
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::vector<std::string> merged_environment(const std::vector<std::string>& added) {
  std::vector<std::string> merged = added;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view ours = *entry;
    const std::string_view name = ours.substr(0, ours.find('=') + 1);
    bool replaced = false;
    for (const std::string& other : added) replaced = replaced || other.starts_with(name);
    if (!replaced) merged.emplace_back(ours);
  }
  return merged;
}

std::vector<char*> c_strings(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(std::vector<std::string> argv, const StandardDescriptors& standard,
            const std::vector<std::string>& added_environment) {
  if (argv.empty()) fail("cannot start a program without a name");
  const std::string program = find_program(argv[0]);
  if (program.empty())
    fail(fmt::format("cannot start \"{}\": no such program (is it installed and on PATH?)", argv[0]));
  std::vector<std::string> environment = merged_environment(added_environment);
  const SpawnSetup setup(standard);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), setup.actions(), setup.attributes(), c_strings(argv).data(),
                                  c_strings(environment).data());
  if (error != 0) fail(fmt::format("cannot start \"{}\": {}", program, errno_name(error)));
  return pid;
}

constexpr int kUnknownExitCode = -1;

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Waits until `deadline` (for ever without one); nullopt when the process still runs then.
std::optional<int> wait_for(pid_t pid, std::optional<Clock::time_point> deadline) {
  for (;;) {
    int status = 0;
    const pid_t got = ::waitpid(pid, &status, deadline ? WNOHANG : 0);
    if (got == pid) return exit_code_of(status);
    if (got < 0 && errno == EINTR) continue;
    // ECHILD: a host that ignores SIGCHLD has taken the status away. An unfinished file must not pass for a finished
    // one, so that counts as a failure.
    if (got < 0) return kUnknownExitCode;
    if (Clock::now() >= *deadline) return std::nullopt;
    std::this_thread::sleep_for(kWaitInterval);
  }
}

int kill_group(pid_t pid) {
  ::kill(-pid, SIGKILL);
  return *wait_for(pid, std::nullopt);
}

// Appends what can be read now; closes the descriptor at its end.
void drain(Descriptor& fd, std::string& text) {
  std::array<char, 1 << 14> block;
  const ssize_t got = ::read(fd.get(), block.data(), block.size());
  if (got > 0) {
    text.append(block.data(), static_cast<std::size_t>(got));
  } else if (got == 0 || errno != EINTR) {
    fd.reset();
  }
}

// Reads both until their ends; false when the deadline came first.
bool capture(Descriptor& out, Descriptor& err, ProcessResult& result, Clock::time_point deadline) {
  while (out || err) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    std::array<pollfd, 2> watched{{{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}}};  // poll skips negative ones
    if (::poll(watched.data(), watched.size(), static_cast<int>(std::min<std::int64_t>(left, 1'000))) <= 0) continue;
    if (watched[0].revents) drain(out, result.out);
    if (watched[1].revents) drain(err, result.err);
  }
  return true;
}

// write() to a pipe whose reader is gone, without the SIGPIPE that would end a host which did not ask for it.
ssize_t write_without_sigpipe(int fd, std::span<const std::byte> bytes) {
  sigset_t pipe_signal, pending, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  const int error = errno;
  if (written < 0 && error == EPIPE && !was_pending) {
    const timespec now{};
    while (::sigtimedwait(&pipe_signal, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

bool is_program(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& name) {
  const char* variable = std::getenv("PATH");
  return find_program(name, variable ? variable : kDefaultPath);
}

std::string find_program(const std::string& name, std::string_view rest) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  while (!name.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    const std::string path = folder.empty() ? name : fmt::format("{}/{}", folder, name);
    if (is_program(path)) return folder.empty() ? "./" + name : path;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return "";
}

ProcessResult run_process(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                          const std::vector<std::string>& environment) {
  const auto deadline = Clock::now() + timeout;
  Pipe out = make_pipe(), err = make_pipe();
  const pid_t pid = spawn(argv, {.out = out.write.get(), .err = err.write.get()}, environment);
  out.write.reset();
  err.write.reset();
  ProcessResult result;
  std::optional<int> code;
  if (capture(out.read, err.read, result, deadline)) code = wait_for(pid, deadline);
  result.timed_out = !code;
  // A child that hangs in the kernel does not even die: its end is then not waited for.
  if (!code) ::kill(-pid, SIGKILL);
  result.exit_code = code ? *code : wait_for(pid, Clock::now() + kKillPatience).value_or(128 + SIGKILL);
  return result;
}

struct PipedProcess::Impl {
  std::string program;
  Descriptor input, errors;
  pid_t pid = 0;
  std::optional<EndsWithUs> ends_with_us;
  std::optional<int> exit_code;
  mutable std::mutex mutex;  // guards error_text
  std::string error_text;
  std::thread reader;

  ~Impl() {
    input.reset();
    if (!exit_code) kill_group(pid);
    if (reader.joinable()) reader.join();
  }

  void keep_errors() {
    std::string block;
    while (errors) {
      block.clear();
      drain(errors, block);
      std::lock_guard lock(mutex);
      error_text += block;
      if (error_text.size() > kKeptErrorBytes) error_text.erase(0, error_text.size() - kKeptErrorBytes);
    }
  }

  int wait() {
    if (!exit_code) exit_code = wait_for(pid, std::nullopt);
    ends_with_us.reset();  // its number may soon be another's
    return *exit_code;
  }
};

PipedProcess::PipedProcess(const std::vector<std::string>& argv) {
  Pipe input = make_pipe(), errors = make_pipe();
  ::fcntl(input.write.get(), F_SETPIPE_SZ, kPipeBytes);  // refused for ordinary users over their limit: then smaller
  const pid_t pid = spawn(argv, {.in = input.read.get(), .err = errors.write.get()}, {});
  impl_ = std::make_unique<Impl>();
  impl_->program = argv[0];
  impl_->pid = pid;
  impl_->ends_with_us.emplace(pid);
  impl_->input = std::move(input.write);
  impl_->errors = std::move(errors.read);
  impl_->reader = std::thread([impl = impl_.get()] { impl->keep_errors(); });
}

PipedProcess::PipedProcess(PipedProcess&&) noexcept = default;
PipedProcess& PipedProcess::operator=(PipedProcess&&) noexcept = default;
PipedProcess::~PipedProcess() = default;

void PipedProcess::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write_without_sigpipe(impl_->input.get(), bytes);
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      const int code = wait();
      fail(fmt::format("{} ended early with exit code {}: {}", impl_->program, code, error_output()));
    } else if (errno != EINTR) {
      fail(fmt::format("cannot write {} bytes to {}: {}", bytes.size(), impl_->program, errno_name(errno)));
    }
  }
}

void PipedProcess::close_input() {
  impl_->input.reset();
}

int PipedProcess::wait() {
  close_input();
  const int code = impl_->wait();
  // Its last words are complete once the reader has seen the end.
  if (impl_->reader.joinable()) impl_->reader.join();
  return code;
}

std::string PipedProcess::error_output() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->error_text;
}

}  // namespace reelgrad
