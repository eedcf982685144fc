#include "reelgrad/plugin/engine_call.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "reelgrad/base/error.h"

namespace reelgrad::vs {
namespace {

struct Target {
  VSCore* core = nullptr;
  const VSAPI* api = nullptr;
};

thread_local Target current;

// Never destroyed: threads may still ask it after main() has ended.
struct Calls {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  bool ending = false;
};

Calls& calls() {
  static Calls& all = *new Calls;
  return all;
}

void begin_call() {
  Calls& all = calls();
  std::lock_guard lock(all.mutex);
  if (all.ending) fail("the program is ending");
  ++all.running;
}

void end_call() {
  Calls& all = calls();
  std::lock_guard lock(all.mutex);
  --all.running;
  all.changed.notify_all();
}

void wait_for_calls() {
  Calls& all = calls();
  std::unique_lock lock(all.mutex);
  if (std::exchange(all.ending, true)) return;          // registered once a session: the first to run has waited
  constexpr auto kPatience = std::chrono::seconds(60);  // a call that never ends must not keep the program
  all.changed.wait_for(lock, kPatience, [&] { return all.running == 0; });
}

VSMessageType message_type(log::Level level) {
  switch (level) {
    case log::Level::debug:
      return mtDebug;
    case log::Level::info:
      return mtInformation;
    case log::Level::warning:
      return mtWarning;
    case log::Level::error:
      return mtCritical;
  }
  return mtInformation;
}

void forward(log::Level level, std::string_view message) {
  if (!current.core) {  // a thread of the engine's own, or a caller that is not this plugin: our words, on stderr
    log::write(level, message);
    return;
  }
  const std::string text = "reelgrad: " + std::string(message);
  current.api->logMessage(message_type(level), text.c_str(), current.core);
}

}  // namespace

EngineCall::EngineCall(VSCore* core, const VSAPI* api) : outer_core_(current.core), outer_api_(current.api) {
  begin_call();
  current = {core, api};
}

EngineCall::~EngineCall() {
  current = {outer_core_, outer_api_};
  end_call();
}

Engine& engine() {
  Engine& opened = open_engine(forward);
  static const bool first = [] {
    end_calls_first();
    return true;
  }();
  static_cast<void>(first);
  return opened;
}

void end_calls_first() {
  std::atexit(wait_for_calls);
}

}  // namespace reelgrad::vs
