#include "reelgrad/clip/image_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <string_view>
#include <thread>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/image_files.h"
#include "reelgrad/clip/source_plugin.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

// --- Names ---

// Every image at or below the folder, relative to it, in natural order.
std::vector<fs::path> images_below(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail_usage(fmt::format("{}: no such folder of images", folder.string()));
  std::vector<fs::path> files;
  constexpr auto kOptions = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(folder, kOptions, error), end; !error && entry != end;
       entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');  // such as macOS's ._0001.png
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (hidden || !is_image(entry->path()) || !entry->is_regular_file()) continue;
    files.push_back(entry->path().lexically_relative(folder));
  }
  if (error) fail(fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
  if (files.empty()) fail_usage(fmt::format("{}: the folder holds no images (.png, .jpg, .webp, …)", folder.string()));
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return natural_less(a.string(), b.string()); });
  return files;
}

std::string plain_name(const fs::path& file) {
  return (file.parent_path() / file.stem()).string();
}

// Without what tells the sides apart: DIV2K's "0001x2" and "0001x4m", "a_LR2", "a_HR", "a-gt".
std::string common_name(const fs::path& file) {
  static const std::regex kSide("(.+?)[-_]?(x[0-9]{1,2}([mdw][0-9]?)?|lr[0-9]?|hr|lq|hq|gt)",
                                std::regex::icase | std::regex::optimize);
  std::smatch parts;
  const std::string stem = file.stem().string();
  return std::regex_match(stem, parts, kSide) ? (file.parent_path() / parts[1].str()).string() : plain_name(file);
}

using NameOf = std::string (*)(const fs::path&);

std::map<std::string, fs::path> by_name(const fs::path& folder, const std::vector<fs::path>& files, NameOf name_of) {
  std::map<std::string, fs::path> names;
  for (const fs::path& file : files) {
    const auto [other, added] = names.emplace(name_of(file), file);
    if (added) continue;
    fail_usage(fmt::format("{}: {} and {} would both be the partner of one image; leave one of them in the folder",
                           folder.string(), other->second.string(), file.string()));
  }
  return names;
}

// The files of `left` whose names `right` lacks, as a sentence; empty: none.
std::string missing_partners(const fs::path& left_folder, const std::map<std::string, fs::path>& left,
                             const fs::path& right_folder, const std::map<std::string, fs::path>& right) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> missing;
  for (const auto& [name, file] : left) {
    if (!right.contains(name)) missing.push_back(file.string());
  }
  if (missing.empty()) return {};
  const std::size_t count = missing.size();
  std::sort(missing.begin(), missing.end(), natural_less);
  missing.resize(std::min(count, kShown));
  return fmt::format("{}: {} of {} images {} no partner in {}: {}{}", left_folder.string(), count, left.size(),
                     count == 1 ? "has" : "have", right_folder.string(), join(missing, ", "),
                     count > kShown ? ", …" : "");
}

// Full paths. Names are tried as they are first: "max4" is the partner of "max4", and of "max4x2".
std::vector<ImagePair> match(const fs::path& input_folder, const fs::path& target_folder) {
  const std::vector<fs::path> inputs = images_below(input_folder), targets = images_below(target_folder);
  constexpr std::pair<NameOf, NameOf> kWays[] = {
      {plain_name, plain_name}, {common_name, plain_name}, {common_name, common_name}};
  std::string problem;
  for (const auto& [input_name, target_name] : kWays) {
    const auto input_names = by_name(input_folder, inputs, input_name);
    const auto target_names = by_name(target_folder, targets, target_name);
    problem = missing_partners(input_folder, input_names, target_folder, target_names);
    if (problem.empty()) problem = missing_partners(target_folder, target_names, input_folder, input_names);
    if (!problem.empty()) continue;
    std::vector<ImagePair> pairs;
    for (const fs::path& target : targets) {
      pairs.push_back({input_folder / input_names.at(target_name(target)), target_folder / target, {}});
    }
    return pairs;
  }
  fail_usage(problem + ". Partners have the same path and name, but for the ending and x2, _LR, _HR and the like");
}

// --- Headers ---

struct Header {
  VideoFormat format;
  PictureSize size;
  std::string problem;
  ErrorKind kind = ErrorKind::failed;
};

SourcePlugin image_plugin(const Core& core) {
  for (const SourcePlugin& plugin : kImagePlugins) {
    if (SourceCall(core, plugin).available()) return plugin;
  }
  fail("VapourSynth has no plugin that reads images; install one with `python -m pip install vapoursynth-imageseqs`");
}

// The plugin's node of these files, or nullptr and its words.
VSNode* read_images(const Core& core, const SourcePlugin& plugin, const std::vector<std::string>& files,
                    std::string& error) {
  SourceCall call(core, plugin);
  call.set_files(files);
  if (files.size() > 1) call.set("mismatch", 1);
  if (call.takes("prefetch")) call.set("prefetch", 0);  // what comes next is drawn, not the next file
  return call.invoke(error);
}

// A JPEG ends with the marker FF D9, after which programs may have left a little more. Decoders fill what is missing
// with gray and say nothing.
bool is_cut_short(const fs::path& file) {
  std::string extension = file.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  if (extension != ".jpg" && extension != ".jpeg") return false;
  constexpr std::streamoff kTail = 1 << 16;
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream.tellg();
  if (size <= 0) return false;  // the reader will say what is wrong
  std::string tail(static_cast<std::size_t>(std::min(size, kTail)), '\0');
  stream.seekg(size - static_cast<std::streamoff>(tail.size()));
  stream.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  return tail.starts_with("\xff\xd8") || size > kTail ? tail.find("\xff\xd9") == std::string::npos : false;
}

Header read_header(const Core& core, const SourcePlugin& plugin, const fs::path& file) {
  Header header;
  if (is_cut_short(file)) {
    header.problem = fmt::format("{}: the JPEG is cut short: its end is missing", file.string());
    return header;
  }
  std::string error;
  VSNode* node = read_images(core, plugin, {file.string()}, error);
  if (!node) {
    // What imageseqs says of 4:2:0 samples whose size is odd, which VapourSynth cannot hold. Among others it would end
    // the process.
    const bool odd = error.find("VSVideoInfo") != std::string::npos;
    header.problem = fmt::format("{}: cannot be read as an image: {}", file.string(),
                                 odd ? "its colours are stored at half size and its width or height is odd, which "
                                       "VapourSynth cannot hold; save it as PNG or lossless WebP"
                                     : error);
    return header;
  }
  const VSVideoInfo info = *core.api()->getVideoInfo(node);
  core.api()->freeNode(node);
  const auto format = to_video_format(info.format);
  if (!format || info.width <= 0 || info.height <= 0) {
    header.problem = fmt::format("{}: an image of a format that is not supported", file.string());
  } else if (info.numFrames != 1) {
    header.problem =
        fmt::format("{}: an animation of {} frames; only single pictures can be paired", file.string(), info.numFrames);
    header.kind = ErrorKind::usage;
  } else {
    header.format = *format;
    header.size = {info.width, info.height};
  }
  return header;
}

// Several threads, because each header waits for the disk. Progress is told on the caller's thread.
std::vector<Header> read_headers(const Core& core, const SourcePlugin& plugin, const std::vector<fs::path>& files,
                                 const std::function<void(const std::string&)>& on_progress) {
  std::vector<Header> headers(files.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&](const auto& after_each) {
    for (std::size_t i = next++; i < files.size(); i = next++) {
      headers[i] = read_header(core, plugin, files[i]);
      after_each(i);
    }
  };
  constexpr std::size_t kFilesForAThread = 64, kMostThreads = 8;
  const std::size_t threads = std::min({kMostThreads, files.size() / kFilesForAThread,
                                        static_cast<std::size_t>(std::max(1U, std::thread::hardware_concurrency()))});
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back([&] { work([](std::size_t) {}); });
  work([&](std::size_t i) {
    if (on_progress && i % 256 == 0) on_progress(fmt::format("looking at images: {}%", 100 * i / files.size()));
  });
  others.clear();
  for (const Header& header : headers) {
    if (!header.problem.empty()) throw Error(header.kind, header.problem);
  }
  return headers;
}

// Holds every picture of the folder exactly.
VideoFormat common_format(const std::vector<Header>& headers) {
  VideoFormat common{.family = ColorFamily::gray};
  for (const Header& header : headers) {
    if (header.format.family != ColorFamily::gray) common.family = ColorFamily::rgb;
    if (header.format.bits > 8) common.bits = 16;
    if (header.format.is_float()) common.sample_type = SampleType::floating;
  }
  if (common.is_float()) common.bits = 32;
  return common;
}

void check_scale(const ImagePair& pair, PictureSize target, int scale) {
  const PictureSize wanted{pair.size.width * scale, pair.size.height * scale};
  if (target == wanted) return;
  fail_usage(fmt::format(
      "{}: the target is {}, its input {} is {}; with model.scale = {} the target must be {}: crop both so "
      "that they fit, or change model.scale",
      pair.target.string(), size_text(target), pair.input.string(), size_text(pair.size), scale, size_text(wanted)));
}

// --- Frames ---

// One folder's side of the pairs.
struct Side {
  fs::path folder;
  VideoFormat format;
  bool convert = false;  // some pictures have another format
};

Side make_side(const fs::path& folder, const std::vector<Header>& headers) {
  Side side{folder, common_format(headers)};
  side.convert = std::any_of(headers.begin(), headers.end(), [&](const Header& h) { return h.format != side.format; });
  return side;
}

std::uint32_t format_id(const Core& core, const VideoFormat& format) {
  return core.api()->queryVideoFormatID(format.family == ColorFamily::gray ? cfGray : cfRGB,
                                        format.is_float() ? stFloat : stInteger, format.bits, 0, 0, core.core());
}

// `node`, which it takes, in this format. WebP's chroma lies in the centre and is smoothed, as libwebp does it.
VSNode* converted(const Core& core, VSNode* node, const VideoFormat& format, const std::string& name) {
  const VSAPI* api = core.api();
  const Map args = make_map(api);
  constexpr int kCenter = 1;
  api->mapConsumeNode(args.get(), "clip", node, maReplace);
  api->mapSetInt(args.get(), "format", format_id(core, format), maReplace);
  api->mapSetInt(args.get(), "chromaloc_in", kCenter, maReplace);
  const Map result(api->invoke(api->getPluginByNamespace("resize", core.core()), "Bilinear", args.get()), FreeMap{api});
  if (const char* error = api->mapGetError(result.get())) {
    fail(fmt::format("{}: converting images to {}: {}", name, format.name(), error));
  }
  return api->mapGetNode(result.get(), "clip", 0, nullptr);
}

// A filter behind the pictures: says once that alpha is left out, and stops a picture that is no longer what its header
// said, because everything behind has been laid out for that. (imageseqs stops such a picture itself, others do not.)
struct PictureCheck {
  const VSAPI* api;
  VSNode* node;
  std::string folder;
  VideoFormat format;
  std::vector<std::string> files;
  std::vector<PictureSize> sizes;

  ~PictureCheck() { api->freeNode(node); }

  void note_alpha(const VSFrame* frame, const std::string& file) const {
    const VSMap* props = api->getFramePropertiesRO(frame);
    int missing = 0;
    const char* type = api->mapGetData(props, "ImgSeqOriginalColorType", 0, &missing);  // "Rgba8", "La16"
    if (missing || !(std::string_view(type).starts_with("Rgba") || std::string_view(type).starts_with("La"))) return;
    log::warn_once("alpha " + folder, fmt::format("{}: images with transparency, such as {}: the alpha channel is left "
                                                  "out, what it hides is trained on",
                                                  folder, file));
  }

  // Empty: as its header said.
  std::string problem(const VSFrame* frame, std::size_t n) const {
    const PictureSize size{api->getFrameWidth(frame, 0), api->getFrameHeight(frame, 0)};
    const auto now = to_video_format(*api->getVideoFrameFormat(frame));
    if (size == sizes[n] && now == format) return {};
    return fmt::format("was {} {} when its header was read and is {} {} now", size_text(sizes[n]), format.name(),
                       size_text(size), now ? now->name() : "of an unknown format");
  }
};

const VSFrame* VS_CC checked_picture(int n, int reason, void* instance, void**, VSFrameContext* context, VSCore*,
                                     const VSAPI* api) {
  const auto& check = *static_cast<const PictureCheck*>(instance);
  if (reason == arInitial) api->requestFrameFilter(n, check.node, context);
  if (reason != arAllFramesReady) return nullptr;
  const VSFrame* frame = api->getFrameFilter(n, check.node, context);
  try {
    const auto index = static_cast<std::size_t>(n);
    const std::string problem = check.problem(frame, index);
    if (problem.empty()) {
      check.note_alpha(frame, check.files[index]);
      return frame;
    }
    api->setFilterError(problem.c_str(), context);
  } catch (...) {  // nothing must unwind into VapourSynth
    api->setFilterError("out of memory", context);
  }
  api->freeFrame(frame);
  return nullptr;
}

void VS_CC free_check(void* instance, VSCore*, const VSAPI*) {
  delete static_cast<PictureCheck*>(instance);
}

VSNode* checked(const Core& core, std::unique_ptr<PictureCheck> check) {
  const VSAPI* api = core.api();
  const VSVideoInfo info = *api->getVideoInfo(check->node);
  const VSFilterDependency source{check->node, rpStrictSpatial};
  VSNode* node = api->createVideoFilter2("Pictures", &info, checked_picture, free_check, fmParallel, &source, 1,
                                         check.get(), core.core());
  if (!node) fail(fmt::format("{}: VapourSynth cannot make a filter", check->folder));
  static_cast<void>(check.release());  // free_check's
  return node;
}

Clip make_clip(const std::shared_ptr<const Core>& core, const SourcePlugin& plugin, const Side& side,
               std::vector<std::string> files, std::vector<PictureSize> sizes) {
  const std::string name = files.size() == 1 ? files.front() : side.folder.string();
  ClipInfo info{.format = side.format, .frames = static_cast<std::int64_t>(files.size())};
  for (const PictureSize& size : sizes) {
    info.width = std::max(info.width, size.width);
    info.height = std::max(info.height, size.height);
  }
  std::string error;
  VSNode* node = read_images(*core, plugin, files, error);
  if (!node) fail(fmt::format("{}: cannot be read as images: {}.{}: {}", name, plugin.space, plugin.function, error));
  if (side.convert) node = converted(*core, node, side.format, name);
  std::unique_ptr<PictureCheck> check(
      new PictureCheck{core->api(), node, side.folder.string(), side.format, files, std::move(sizes)});
  return Clip(std::make_shared<Clip::Impl>(core, checked(*core, std::move(check)), name, info, std::move(files)));
}

// "LR/" as "LR".
fs::path without_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

std::vector<fs::path> files_of(const std::vector<ImagePair>& pairs, fs::path ImagePair::*side) {
  std::vector<fs::path> files;
  for (const ImagePair& pair : pairs) files.push_back(pair.*side);
  return files;
}

}  // namespace

struct ImagePairs::Impl {
  std::shared_ptr<const Core> core;
  SourcePlugin plugin;
  int scale = 1;
  Side input, target;
  std::vector<ImagePair> pairs;
};

ImagePairs ImagePairs::open(const fs::path& inputs_at, const fs::path& targets_at, int scale,
                            const OpenOptions& options) {
  const fs::path input_folder = without_slash(inputs_at), target_folder = without_slash(targets_at);
  auto impl = std::make_shared<Impl>();
  impl->pairs = match(input_folder, target_folder);
  OpenOptions core_options = options;
  core_options.on_progress = nullptr;  // the core outlives what it refers to, and images are not indexed
  impl->core = std::make_shared<Core>(target_folder.string(), core_options);
  impl->plugin = image_plugin(*impl->core);
  impl->scale = scale;
  const auto headers = [&](fs::path ImagePair::*side) {
    return read_headers(*impl->core, impl->plugin, files_of(impl->pairs, side), options.on_progress);
  };
  const std::vector<Header> inputs = headers(&ImagePair::input), targets = headers(&ImagePair::target);
  for (std::size_t i = 0; i < impl->pairs.size(); ++i) {
    impl->pairs[i].size = inputs[i].size;
    check_scale(impl->pairs[i], targets[i].size, scale);
  }
  impl->input = make_side(input_folder, inputs);
  impl->target = make_side(target_folder, targets);
  return ImagePairs(std::move(impl));
}

const std::vector<ImagePair>& ImagePairs::list() const {
  return impl_->pairs;
}

ClipPair ImagePairs::clips(const std::vector<std::size_t>& which) const {
  std::vector<std::string> inputs, targets;
  std::vector<PictureSize> input_sizes, target_sizes;
  for (const std::size_t index : which) {
    const ImagePair& pair = impl_->pairs.at(index);
    inputs.push_back(pair.input.string());
    targets.push_back(pair.target.string());
    input_sizes.push_back(pair.size);
    target_sizes.push_back({pair.size.width * impl_->scale, pair.size.height * impl_->scale});
  }
  return {make_clip(impl_->core, impl_->plugin, impl_->target, std::move(targets), std::move(target_sizes)),
          make_clip(impl_->core, impl_->plugin, impl_->input, std::move(inputs), std::move(input_sizes)), impl_->scale};
}

}  // namespace reelgrad
