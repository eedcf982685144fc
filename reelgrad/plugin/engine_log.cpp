#include "reelgrad/plugin/engine_log.h"

#include <string>

namespace reelgrad::vs {
namespace {

struct Target {
  VSCore* core = nullptr;
  const VSAPI* api = nullptr;
};

thread_local Target current;

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
  if (!current.core) {  // a caller of the engine that is not this plugin: its own words, on stderr
    log::write(level, message);
    return;
  }
  const std::string text = "reelgrad: " + std::string(message);
  current.api->logMessage(message_type(level), text.c_str(), current.core);
}

}  // namespace

EngineCall::EngineCall(VSCore* core, const VSAPI* api) {
  current = {core, api};
}

EngineCall::~EngineCall() {
  current = {};
}

Engine& engine() {
  return open_engine(forward);
}

}  // namespace reelgrad::vs
