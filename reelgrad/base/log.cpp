#include "reelgrad/base/log.h"

#include <fmt/format.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "reelgrad/base/console.h"
#include "reelgrad/base/error.h"

namespace reelgrad::log {
namespace {

using FileSink = spdlog::sinks::basic_file_sink_st;  // guarded by State::mutex

struct State {
  std::mutex mutex;
  std::shared_ptr<const Sink> sink;  // null: stderr
  std::map<int, std::unique_ptr<FileSink>> files;
  std::set<std::string, std::less<>> warned;
  int last_id = 0;
};

// Never destroyed: threads may still log while the process exits.
State& state() {
  static State& instance = *new State;
  return instance;
}

bool show_debug() {
  static const bool value = [] {
    const char* text = std::getenv("REELGRAD_DEBUG");
    return text && std::string_view(text) == "1";
  }();
  return value;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void write_stderr(Level level, std::string_view message) {
  const bool color = console::use_color();
  switch (level) {
    case Level::debug:
      if (show_debug()) console::print_line(fmt::format("debug: {}", message));
      return;
    case Level::info:
      console::print_line(message);
      return;
    case Level::warning:
      console::print_line(fmt::format(fmt::runtime(color ? "\x1b[33mwarning:\x1b[0m {}" : "warning: {}"), message));
      return;
    case Level::error:
      console::print_line(fmt::format(fmt::runtime(color ? "\x1b[31merror:\x1b[0m {}" : "error: {}"), message));
      return;
  }
}

std::unique_ptr<FileSink> open_file(const std::string& path) {
  try {
    auto file = std::make_unique<FileSink>(path);
    file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
    return file;
  } catch (const spdlog::spdlog_ex& problem) {
    fail(fmt::format("cannot open the log file: {}", problem.what()));
  }
}

}  // namespace

void write_to_files(Level level, std::string_view message) {
  std::lock_guard lock(state().mutex);
  for (auto& [id, file] : state().files) {
    try {
      file->log({spdlog::string_view_t{}, to_spdlog(level), {message.data(), message.size()}});
      file->flush();
    } catch (const spdlog::spdlog_ex&) {
      // A full disk must not end a training run for the sake of its log; the checkpoint will say it.
    }
  }
}

void write(Level level, std::string_view message) {
  write_to_files(level, message);
  std::shared_ptr<const Sink> sink;
  {
    std::lock_guard lock(state().mutex);
    sink = state().sink;
  }
  // Outside the lock: a sink may log or take other locks.
  if (sink) {
    (*sink)(level, message);
  } else {
    write_stderr(level, message);
  }
}

void debug(std::string_view message) {
  write(Level::debug, message);
}
void info(std::string_view message) {
  write(Level::info, message);
}
void warning(std::string_view message) {
  write(Level::warning, message);
}
void error(std::string_view message) {
  write(Level::error, message);
}

void warn_once(std::string_view key, std::string_view message) {
  {
    std::lock_guard lock(state().mutex);
    if (!state().warned.emplace(key).second) return;
  }
  warning(message);
}

void set_sink(Sink sink) {
  auto shared = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  std::lock_guard lock(state().mutex);
  state().sink = std::move(shared);
}

FileGuard add_file(const std::string& path) {
  auto file = open_file(path);
  std::lock_guard lock(state().mutex);
  const int id = ++state().last_id;
  state().files.emplace(id, std::move(file));
  return FileGuard(id);
}

FileGuard::~FileGuard() {
  if (id_ == 0) return;
  std::lock_guard lock(state().mutex);
  state().files.erase(id_);
}

}  // namespace reelgrad::log
