#pragma once
#include <VSScript4.h>
#include <VapourSynth4.h>

#include <filesystem>
#include <memory>
#include <string>

#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/vulkan_card.h"

namespace reelgrad {

struct LogTarget;

// One VapourSynth core, alone (for video files) or inside an evaluated script. Clips and frames share it, so it is
// freed after the last of them; nodes and frames must be freed before it. Never destroyed on one of VapourSynth's
// threads.
class Core {
 public:
  // `name` introduces VapourSynth's warnings. Throws when VapourSynth cannot be used.
  Core(std::string name, const OpenOptions& options);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  const VSAPI* api() const { return api_; }
  VSCore* core() const { return core_; }
  int threads() const;
  const CardSupport& card() const { return card_; }  // of the card that OpenOptions names

  // Evaluates a .vpy in its own folder with these variables. Throws usage with file, line and Python's message.
  void evaluate(const std::filesystem::path& path, const std::map<std::string, std::string>& variables);
  VSScript* script() const { return script_; }
  const VSSCRIPTAPI* script_api() const { return script_api_; }

  // After this no progress is reported: what the caller's function refers to may be gone.
  void end_progress();

 private:
  const VSAPI* api_;
  const VSSCRIPTAPI* script_api_;
  VSCore* core_ = nullptr;  // belongs to script_ when there is one
  VSScript* script_ = nullptr;
  std::shared_ptr<LogTarget> log_;
  CardSupport card_{.why_not = "they were not asked for in a card's memory"};
};

struct FreeMap {
  const VSAPI* api;
  void operator()(VSMap* map) const { api->freeMap(map); }
};
using Map = std::unique_ptr<VSMap, FreeMap>;
inline Map make_map(const VSAPI* api) {
  return Map(api->createMap(), FreeMap{api});
}

struct FreeNode {
  const VSAPI* api = nullptr;
  void operator()(VSNode* node) const { api->freeNode(node); }
};
using Node = std::unique_ptr<VSNode, FreeNode>;

}  // namespace reelgrad
