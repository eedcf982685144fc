#include "reelgrad/clip/video_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/image_files.h"
#include "reelgrad/clip/source_plugin.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::array<SourcePlugin, 3> kVideoPlugins{
    {{"bs", "VideoSource"}, {"lsmas", "LWLibavSource"}, {"ffms2", "Source"}}};

// A file that was replaced by another gets another index: the name depends on its size and time, too.
std::string index_name(const fs::path& file) {
  std::error_code ignored;
  const std::string key = fmt::format("{}|{}|{}", file.string(), fs::file_size(file, ignored),
                                      fs::last_write_time(file, ignored).time_since_epoch().count());
  return xxh3_128_hex(std::as_bytes(std::span(key)));
}

// BestSource's index of what a card decodes is another one.
std::string index_path(const fs::path& file, bool on_card = false) {
  const fs::path folder = cache_folder() / "index";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(fmt::format("cannot make the folder of video indexes {}: {}", folder.string(), error.message()));
  return (folder / index_name(file)).string() + (on_card ? ".gpu" : "");
}

void set_video_arguments(SourceCall& call, const SourcePlugin& plugin, const fs::path& file, bool on_card) {
  call.set("source", file.string());
  if (std::string_view(plugin.space) == "bs") {
    constexpr int kAlwaysIndexAtCachePath = 4;
    call.set("cachemode", kAlwaysIndexAtCachePath);
    call.set("cachepath", index_path(file, on_card));
    call.set("showprogress", 1);
  } else if (call.takes("cachefile")) {
    call.set("cachefile", index_path(file) + "." + plugin.space);
  }
}

// Why the first frame cannot be had; empty: it can. A driver may promise more than it keeps: better known now than in
// the middle of a run.
std::string first_frame_error(const VSAPI* api, VSNode* node) {
  std::string text(1024, '\0');
  const VSFrame* frame = api->getFrame(0, node, text.data(), static_cast<int>(text.size()));
  api->freeFrame(frame);
  return frame ? "" : text.c_str();
}

// The file with its frames in the card's memory; nullptr and why when that cannot be.
VSNode* open_on_card(const Core& core, const SourcePlugin& plugin, const fs::path& file, std::string& why_not) {
  why_not = core.card().why_not;
  if (!core.card().usable) return nullptr;
  SourceCall call(core, plugin);
  if (!call.takes("gpu") || !call.takes("gpufallback")) {
    why_not = fmt::format("{}.{} does not decode on the card; BestSource 22 does", plugin.space, plugin.function);
    return nullptr;
  }
  set_video_arguments(call, plugin, file, /*on_card=*/true);
  call.set("gpu", 1);
  call.set("gpufallback", 0);  // say why instead
  std::string error;
  Node node(call.invoke(error), FreeNode{core.api()});
  if (node) error = first_frame_error(core.api(), node.get());
  if (node && core.api()->getNodeResidency(node.get()) != nrGPU) error = "its frames are in host memory";
  if (error.empty()) return node.release();
  why_not = fmt::format("{}.{} does not decode it on the card: {}", plugin.space, plugin.function, error);
  return nullptr;
}

std::vector<std::string> images_in(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_regular_file() && is_image(entry.path())) files.push_back(entry.path().string());
  }
  if (error) fail(fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
  if (files.empty()) fail(fmt::format("{}: the folder holds no images (.png, .jpg, .tif, …)", folder.string()));
  std::sort(files.begin(), files.end(), natural_less);
  return files;
}

}  // namespace

SourceNode open_video_file(const Core& core, const fs::path& path) {
  std::vector<std::string> reasons;
  for (const SourcePlugin& plugin : kVideoPlugins) {
    SourceCall call(core, plugin);
    if (!call.available()) continue;
    std::string error, host_reason;
    if (VSNode* node = open_on_card(core, plugin, path, host_reason)) return {node, ""};
    set_video_arguments(call, plugin, path, /*on_card=*/false);
    if (VSNode* node = call.invoke(error)) return {node, host_reason};
    reasons.push_back(fmt::format("{}.{}: {}", plugin.space, plugin.function, error));
  }
  if (reasons.empty()) {
    fail(
        fmt::format("{}: VapourSynth has no plugin that opens video files; install one with `python -m pip install "
                    "vapoursynth-bestsource` (or vapoursynth-lsmas, vapoursynth-ffms2)",
                    path.string()));
  }
  fail(fmt::format("{}: cannot be read as video: {}", path.string(), join(reasons, "; ")));
}

SourceNode open_image_folder(const Core& core, const fs::path& folder) {
  const std::vector<std::string> files = images_in(folder);
  for (const SourcePlugin& plugin : kImagePlugins) {
    SourceCall call(core, plugin);
    if (!call.available()) continue;
    call.set_files(files);
    std::string error;
    if (VSNode* node = call.invoke(error)) return {node, "images are decoded in host memory"};
    fail(fmt::format("{}: cannot be read as images: {}.{}: {}", folder.string(), plugin.space, plugin.function, error));
  }
  fail(
      fmt::format("{}: VapourSynth has no plugin that opens image folders; install one with `python -m pip install "
                  "vapoursynth-imageseqs`",
                  folder.string()));
}

std::vector<std::string> installed_source_plugins(const VSAPI* api, VSCore* core) {
  std::vector<std::string> found;
  const auto add = [&](const SourcePlugin& plugin) {
    if (api->getPluginByNamespace(plugin.space, core)) found.emplace_back(plugin.space);
  };
  std::for_each(kVideoPlugins.begin(), kVideoPlugins.end(), add);
  std::for_each(kImagePlugins.begin(), kImagePlugins.end(), add);
  return found;
}

}  // namespace reelgrad
