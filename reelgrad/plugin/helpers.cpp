#include "reelgrad/plugin/helpers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/doctor/advice.h"
#include "reelgrad/doctor/probes/probes.h"
#include "reelgrad/doctor/rules/rules.h"
#include "reelgrad/doctor/torch/torch_install.h"
#include "reelgrad/plugin/arguments.h"
#include "reelgrad/plugin/engine_call.h"

namespace reelgrad::vs {
namespace {

using nlohmann::json;

// A function's result, a dict in Python.
class Result {
 public:
  Result(VSMap* out, const VSAPI* api) : out_(out), api_(api) {}

  void set(const char* key, const std::string& value, VSMapAppendMode mode = maReplace) const {
    api_->mapSetData(out_, key, value.c_str(), static_cast<int>(value.size()), dtUtf8, mode);
  }
  void append(const char* key, const std::string& value) const { set(key, value, maAppend); }
  void append(const char* key, std::int64_t value) const { api_->mapSetInt(out_, key, value, maAppend); }
  void make_empty(const char* key, VSPropertyType type) const { api_->mapSetEmpty(out_, key, type); }

 private:
  VSMap* out_;
  const VSAPI* api_;
};

void list_devices(const Result& result) {
  ProbeOptions options = probe_options();
  options.video = false;
  const Facts facts = probe_machine(options);
  for (const char* key : {"device", "name", "uuid", "compute_capability", "driver", "why_not"}) {
    result.make_empty(key, ptData);
  }
  for (const char* key : {"memory_mb", "memory_free_mb", "usable"}) result.make_empty(key, ptInt);
  for (const DeviceFacts& device : facts.devices) {
    const std::string reason = why_not(device, facts);
    result.append("device", fmt::format("cuda:{}", device.index));
    result.append("name", device.name);
    result.append("uuid", device.uuid);
    result.append("compute_capability", to_string(capability_of(device)));
    result.append("driver", facts.driver.version);
    result.append("why_not", reason);
    result.append("memory_mb", device.memory_total_mb);
    result.append("memory_free_mb", device.memory_free_mb);
    result.append("usable", std::int64_t{reason.empty()});
  }
}

// As VapourSynth wants the keys of a map.
std::string identifier(std::string key) {
  std::replace_if(
      key.begin(), key.end(), [](unsigned char c) { return !std::isalnum(c) && c != '_'; }, '_');
  return key.empty() || std::isdigit(static_cast<unsigned char>(key.front())) ? "_" + key : key;
}

void inspect(const std::string& model, const Result& result) {
  InspectResult described;
  engine().inspect_model(model, described).raise();
  const json values = json::parse(described.json);
  for (const auto& [key, value] : values.items()) {
    result.set(identifier(key).c_str(), value.is_string() ? value.get<std::string>() : value.dump());
  }
}

void show_versions(const Result& result) {
  std::string why;
  const std::optional<TorchInstall> torch = find_torch(&why);
  result.set("version", REELGRAD_VERSION);
  result.set("torch", torch ? torch->version : "");
  result.set("torch_path", torch ? torch->dir.string() : "");
  result.set("problem", torch ? "" : why);
}

void VS_CC version(const VSMap*, VSMap* out, void*, VSCore*, const VSAPI* api) {
  guarded(
      "Version", [&](const char* message) { api->mapSetError(out, message); },
      [&] { show_versions(Result(out, api)); });
}

void VS_CC devices(const VSMap*, VSMap* out, void*, VSCore*, const VSAPI* api) {
  guarded(
      "Devices", [&](const char* message) { api->mapSetError(out, message); }, [&] { list_devices(Result(out, api)); });
}

void VS_CC inspect_callback(const VSMap* in, VSMap* out, void*, VSCore* core, const VSAPI* api) {
  guarded(
      "Inspect", [&](const char* message) { api->mapSetError(out, message); },
      [&] {
        const EngineCall call(core, api);
        inspect(Arguments(in, api).text("model", ""), Result(out, api));
      });
}

}  // namespace

void register_helpers(VSPlugin* plugin, const VSPLUGINAPI* api) {
  // version: the plugin's; torch, torch_path: what Model would open, empty when there is none; problem: why, or empty.
  api->registerFunction("Version", "", "version:data;torch:data;torch_path:data;problem:data;", version, nullptr,
                        plugin);
  // An entry a card in each list. `device` is what Model's argument takes; `why_not` is empty where a card is usable.
  api->registerFunction("Devices", "",
                        "device:data[]:empty;name:data[]:empty;uuid:data[]:empty;compute_capability:data[]:empty;"
                        "driver:data[]:empty;why_not:data[]:empty;memory_mb:int[]:empty;memory_free_mb:int[]:empty;"
                        "usable:int[]:empty;",
                        devices, nullptr, plugin);
  // What `reelgrad inspect` says; what is not text is JSON.
  api->registerFunction("Inspect", "model:data;", "any", inspect_callback, nullptr, plugin);
}

}  // namespace reelgrad::vs
