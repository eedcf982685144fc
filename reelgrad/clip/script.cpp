#include <fmt/format.h>

#include <map>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/core.h"
#include "reelgrad/clip/file_name.h"
#include "reelgrad/clip/video_source.h"

namespace reelgrad {

namespace fs = std::filesystem;

struct Script::Impl {
  fs::path path;
  bool is_script = false;
  std::map<int, Clip> outputs;
};

namespace {

bool is_script_name(const fs::path& path) {
  const std::string extension = lower_extension(path);
  return extension == ".vpy" || extension == ".py";
}

std::string display_name(const fs::path& path) {
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

constexpr const char* kHostOutput =
    "the script makes them in host memory (bs.VideoSource(…, gpu=1) decodes on the card, std.GPUUpload() brings them "
    "there)";

std::map<int, Clip> script_outputs(const std::shared_ptr<Core>& core, const std::string& name) {
  const VSSCRIPTAPI* api = core->script_api();
  std::vector<int> indices(api->getAvailableOutputNodes(core->script(), 0, nullptr));
  api->getAvailableOutputNodes(core->script(), static_cast<int>(indices.size()), indices.data());
  std::map<int, Clip> outputs;
  for (const int index : indices) {
    VSNode* node = core->card().usable ? api->getOutputNodeEx(core->script(), index, sgfAllowGPUResident)
                                       : api->getOutputNode(core->script(), index);
    if (!node) continue;
    if (core->api()->getNodeType(node) != mtVideo) {
      core->api()->freeNode(node);
      continue;
    }
    auto clip = std::make_shared<Clip::Impl>(core, node, fmt::format("{}, output {}", name, index), kHostOutput);
    outputs.emplace(index, Clip(std::move(clip)));
  }
  if (outputs.empty()) {
    fail_usage(fmt::format("{}: the script has no video output; end it with clip.set_output()", name));
  }
  return outputs;
}

void log_host_paths(const std::map<int, Clip>& outputs) {
  for (const auto& [index, clip] : outputs) {
    if (clip.frame_path().gpu) continue;
    log::debug(fmt::format("{}: frames come through host memory: {}", clip.name(), clip.frame_path().why));
  }
}

std::string indexing_text(const std::string& name, const std::string& message) {
  const auto percent = message.find_last_of('%');
  const auto begin = percent == std::string::npos ? percent : message.find_last_not_of("0123456789", percent - 1);
  if (begin == std::string::npos) return fmt::format("indexing {}", name);
  return fmt::format("indexing {}: {}", name, message.substr(begin + 1, percent - begin));
}

}  // namespace

Script Script::open(const fs::path& path, const OpenOptions& options) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path).lexically_normal();
  if (!fs::exists(absolute, error)) fail_usage(fmt::format("{}: no such file or folder", path.string()));
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->is_script = is_script_name(absolute) && !fs::is_directory(absolute, error);
  const std::string name = display_name(absolute);
  OpenOptions core_options = options;
  if (options.on_progress) {
    core_options.on_progress = [&](const std::string& message) { options.on_progress(indexing_text(name, message)); };
  }
  const auto core = std::make_shared<Core>(name, core_options);
  if (impl->is_script) {
    core->evaluate(absolute, options.args);
    core->end_progress();
    impl->outputs = script_outputs(core, name);
  } else {
    const SourceNode source =
        fs::is_directory(absolute, error) ? open_image_folder(*core, absolute) : open_video_file(*core, absolute);
    core->end_progress();
    impl->outputs.emplace(0, Clip(std::make_shared<Clip::Impl>(core, source.node, name, source.host_reason)));
  }
  if (options.card) log_host_paths(impl->outputs);
  return Script(std::move(impl));
}

Script open_named_clip(const fs::path& path, const OpenOptions& options) {
  try {
    return Script::open(path, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    fail(error.what());
  }
}

const fs::path& Script::path() const {
  return impl_->path;
}
bool Script::is_script() const {
  return impl_->is_script;
}

std::vector<int> Script::outputs() const {
  std::vector<int> indices;
  for (const auto& [index, clip] : impl_->outputs) indices.push_back(index);
  return indices;
}

std::optional<Clip> Script::output(int index) const {
  const auto found = impl_->outputs.find(index);
  if (found == impl_->outputs.end()) return std::nullopt;
  return found->second;
}

}  // namespace reelgrad
