#include "reelgrad/clip/video_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/file_name.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

struct SourcePlugin {
  const char* space;
  const char* function;
};
constexpr std::array<SourcePlugin, 3> kVideoPlugins{
    {{"bs", "VideoSource"}, {"lsmas", "LWLibavSource"}, {"ffms2", "Source"}}};
constexpr std::array<SourcePlugin, 2> kImagePlugins{{{"imgseqs", "Read"}, {"imwri", "Read"}}};

// A file that was replaced by another gets another index: the name depends on its size and time, too.
std::string index_name(const fs::path& file) {
  std::error_code ignored;
  const std::string key = fmt::format("{}|{}|{}", file.string(), fs::file_size(file, ignored),
                                      fs::last_write_time(file, ignored).time_since_epoch().count());
  return xxh3_128_hex(std::as_bytes(std::span(key)));
}

std::string index_path(const fs::path& file) {
  const fs::path folder = cache_folder() / "index";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(fmt::format("cannot make the folder of video indexes {}: {}", folder.string(), error.message()));
  return (folder / index_name(file)).string();
}

class Call {
 public:
  Call(const Core& core, const SourcePlugin& plugin)
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

void set_video_arguments(Call& call, const SourcePlugin& plugin, const fs::path& file) {
  call.set("source", file.string());
  if (std::string_view(plugin.space) == "bs") {
    constexpr int kAlwaysIndexAtCachePath = 4;
    call.set("cachemode", kAlwaysIndexAtCachePath);
    call.set("cachepath", index_path(file));
    call.set("showprogress", 1);
  } else if (call.takes("cachefile")) {
    call.set("cachefile", index_path(file) + "." + plugin.space);
  }
}

bool is_image(const fs::path& file) {
  static constexpr std::array kExtensions{".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".exr"};
  const std::string extension = lower_extension(file);
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

// Digits compare as numbers, so that 2.png comes before 10.png.
bool natural_less(const std::string& a, const std::string& b) {
  const auto digits = [](const std::string& text, std::size_t from) {
    std::size_t end = from;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    return end - from;
  };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const std::size_t m = digits(a, i), n = digits(b, j);
    if (m > 0 && n > 0) {
      const auto significant = [](std::string_view number) {
        number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
        return number;
      };
      const std::string_view x = significant(std::string_view(a).substr(i, m));
      const std::string_view y = significant(std::string_view(b).substr(j, n));
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i += m;
      j += n;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // 1.png and 01.png
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

VSNode* open_video_file(const Core& core, const fs::path& path) {
  std::vector<std::string> reasons;
  for (const SourcePlugin& plugin : kVideoPlugins) {
    Call call(core, plugin);
    if (!call.available()) continue;
    set_video_arguments(call, plugin, path);
    std::string error;
    if (VSNode* node = call.invoke(error)) return node;
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

VSNode* open_image_folder(const Core& core, const fs::path& folder) {
  const std::vector<std::string> files = images_in(folder);
  for (const SourcePlugin& plugin : kImagePlugins) {
    Call call(core, plugin);
    if (!call.available()) continue;
    const char* argument = call.takes("files") ? "files" : "filename";
    for (const std::string& file : files) call.set(argument, file);
    std::string error;
    if (VSNode* node = call.invoke(error)) return node;
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
