// Calling a source plugin that may be missing or of another version.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "reelgrad/clip/core.h"

namespace reelgrad {

struct SourcePlugin {
  const char* space;
  const char* function;
};
inline constexpr std::array<SourcePlugin, 2> kImagePlugins{{{"imgseqs", "Read"}, {"imwri", "Read"}}};

// One call of a plugin's function: arguments, then invoke().
class SourceCall {
 public:
  SourceCall(const Core& core, const SourcePlugin& plugin)
      : api_(core.api()),
        plugin_(api_->getPluginByNamespace(plugin.space, core.core())),
        function_(plugin.function),
        args_(make_map(api_)) {
    if (!plugin_) return;
    if (VSPluginFunction* function = api_->getPluginFunctionByName(function_, plugin_)) {
      signature_ = ";" + std::string(api_->getPluginFunctionArguments(function));
    }
  }
  bool available() const { return !signature_.empty(); }
  // Of an image plugin, which call them by one of two names.
  void set_files(const std::vector<std::string>& files) {
    const char* argument = takes("files") ? "files" : "filename";
    for (const std::string& file : files) set(argument, file);
  }
  bool takes(const std::string& argument) const { return signature_.find(";" + argument + ":") != std::string::npos; }

  void set(const char* name, const std::string& value) {
    api_->mapSetData(args_.get(), name, value.data(), static_cast<int>(value.size()), dtUtf8, maAppend);
  }
  void set(const char* name, std::int64_t value) { api_->mapSetInt(args_.get(), name, value, maAppend); }

  // nullptr and the plugin's words on failure.
  VSNode* invoke(std::string& error) {
    const Map result(api_->invoke(plugin_, function_, args_.get()), FreeMap{api_});
    if (const char* text = api_->mapGetError(result.get())) {
      error = text;
      return nullptr;
    }
    return api_->mapGetNode(result.get(), "clip", 0, nullptr);
  }

 private:
  const VSAPI* api_;
  VSPlugin* plugin_;
  const char* function_;
  std::string signature_;
  Map args_;
};

}  // namespace reelgrad
