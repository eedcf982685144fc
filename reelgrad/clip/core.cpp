#include "reelgrad/clip/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/clip/python_error.h"
#include "reelgrad/clip/vs_library.h"

namespace reelgrad {

// Where a core's messages go. VapourSynth calls it from any thread, one message at a time.
struct LogTarget {
  std::string name;
  std::mutex mutex;
  std::function<void(const std::string&)> on_progress;

  void receive(int type, std::string message) {
    message.erase(message.find_last_not_of("\r\n") + 1);
    if (type >= mtWarning) {
      log::write(type == mtWarning ? log::Level::warning : log::Level::error, fmt::format("{}: {}", name, message));
      return;
    }
    if (type == mtInformation && message.find("progress") != std::string::npos) {
      std::lock_guard lock(mutex);
      if (on_progress) return on_progress(message);
    }
    log::debug(fmt::format("{}: {}", name, message));
  }
};

namespace {

using SharedTarget = std::shared_ptr<LogTarget>;

void VS_CC receive_log(int type, const char* message, void* user) {
  try {
    (*static_cast<SharedTarget*>(user))->receive(type, message);
  } catch (...) {
    // A message that cannot be shown must not unwind into VapourSynth.
  }
}

void VS_CC free_log(void* user) {
  delete static_cast<SharedTarget*>(user);
}

bool is_identifier(const std::string& name) {
  const auto letter = [](unsigned char c) { return std::isalpha(c) || c == '_' || c >= 0x80; };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](unsigned char c) { return letter(c) || std::isdigit(c); });
}

Map variable_map(const VSAPI* api, const std::map<std::string, std::string>& variables) {
  Map map = make_map(api);
  for (const auto& [name, value] : variables) {
    if (!is_identifier(name)) {
      fail_usage(fmt::format("script argument \"{}\": the name must be a Python identifier", name));
    }
    api->mapSetData(map.get(), name.c_str(), value.data(), static_cast<int>(value.size()), dtUtf8, maReplace);
  }
  return map;
}

}  // namespace

Core::Core(std::string name, const OpenOptions& options)
    : api_(vapoursynth().api), script_api_(vapoursynth().script), log_(std::make_shared<LogTarget>()) {
  log_->name = std::move(name);
  log_->on_progress = options.on_progress;
  core_ = api_->createCore(0);
  if (!core_) fail(log_->name + ": VapourSynth cannot create a core");
  api_->addLogHandler(receive_log, free_log, new SharedTarget(log_), core_);
  if (options.threads > 0) api_->setThreadCount(options.threads, core_);
  if (options.cache_bytes > 0) api_->setMaxCacheSize(options.cache_bytes, core_);
  if (options.card) card_ = use_card(api_, core_, *options.card);
}

Core::~Core() {
  end_progress();
  if (script_) {
    script_api_->freeScript(script_);
  } else if (core_) {
    api_->freeCore(core_);
  }
}

int Core::threads() const {
  VSCoreInfo2 info;
  api_->getCoreInfo2(core_, &info);
  return info.numThreads;
}

void Core::end_progress() {
  std::lock_guard lock(log_->mutex);
  log_->on_progress = nullptr;
}

void Core::evaluate(const std::filesystem::path& path, const std::map<std::string, std::string>& variables) {
  const Map map = variable_map(api_, variables);
  VSCore* core = std::exchange(core_, nullptr);  // createScript takes it, even when it fails
  script_ = script_api_->createScript(core);
  if (!script_) fail(fmt::format("{}: VapourSynth cannot create a script environment", log_->name));
  core_ = core;
  script_api_->setVariables(script_, map.get());
  script_api_->evalSetWorkingDir(script_, 1);
  if (script_api_->evaluateFile(script_, path.c_str()) == 0) return;
  const char* text = script_api_->getError(script_);
  const std::string reason = shorten_python_error(text ? text : "", path.string());
  const bool says_where = reason.find(path.string()) != std::string::npos;
  throw Error(is_memory_error(reason) ? ErrorKind::out_of_memory : ErrorKind::usage,
              says_where ? reason : fmt::format("{}: {}", path.string(), reason));
}

}  // namespace reelgrad
