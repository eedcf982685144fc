// Human text for stderr and the run's log file. Thread-safe. Each binary (reelgrad, libreelgrad.so, the plugin) has its
// own copy; the engine's forwards to its host's (engine/engine.h).
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace reelgrad::log {

enum class Level { debug, info, warning, error };

using Sink = std::function<void(Level, std::string_view message)>;

void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);
void write(Level level, std::string_view message);

// The warning is given once for each `key` in this process.
void warn_once(std::string_view key, std::string_view message);

// Replaces where messages go; default: stderr through base/console.h, debug only with REELGRAD_DEBUG=1.
void set_sink(Sink sink);

// Additionally appends every message, with its time, to this file until the returned guard dies.
class FileGuard {
 public:
  FileGuard() = default;
  explicit FileGuard(int id) : id_(id) {}
  FileGuard(FileGuard&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  FileGuard& operator=(FileGuard&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~FileGuard();

 private:
  int id_ = 0;
};
[[nodiscard]] FileGuard add_file(const std::string& path);

// To the files alone: what the caller will still be told in another way.
void write_to_files(Level level, std::string_view message);

}  // namespace reelgrad::log
