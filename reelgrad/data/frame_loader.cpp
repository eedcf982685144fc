// frames/loader.h over the training loader: the same draws, pools and kernels as `reelgrad train`.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <regex>

#include "reelgrad/base/error.h"
#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/frames/loader.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

fs::path absolute_or_empty(const fs::path& path) {
  return path.empty() ? path : fs::absolute(path);
}

// By the configuration's reader: a wrong value gets the same message as in a file, but for the line that it stands in.
void check(const Config& keys) {
  const std::string name = "FrameLoader";
  try {
    parse_config(to_toml(keys), name, fs::current_path());
  } catch (const Error& error) {
    throw Error(error.kind(), std::regex_replace(error.what(), std::regex(name + "(:[0-9]+)?: data\\."), name + ": "));
  }
}

// The options as the configuration that they are.
Config as_config(const FrameLoaderOptions& options) {
  Config keys;
  DataConfig& data = keys.data;
  if (!options.script.empty()) data.script = {{.path = absolute_or_empty(options.script), .args = options.args}};
  if (!options.inputs.empty() || !options.targets.empty()) {
    data.pairs = {{.input = absolute_or_empty(options.inputs), .target = absolute_or_empty(options.targets)}};
  }
  data.batch = options.batch;
  data.crop_px = options.crop_px;
  data.window = options.window;
  data.frame_step = options.frame_step;
  data.color = options.color;
  data.augment = options.augment;
  data.reuse = options.reuse;
  data.segment_frames = options.segment_frames;
  data.pool_frames = options.pool_frames;
  keys.run.name = "loader";
  keys.run.seed = options.seed;
  check(keys);
  keys.model.scale = options.scale;  // any, whatever the built-in architectures offer
  return keys;
}

// "cuda" is the current card.
torch::Device numbered(torch::Device device) {
  return device.is_cpu() || device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

std::vector<TrainingClip> open_clips(const Config& config, torch::Device device) {
  std::vector<TrainingClip> clips = open_training_clips(config, [&](const ScriptConfig& script) {
    return Script::open(script.path,
                        {.args = script.args, .cache_bytes = kTrainingCacheBytes, .card = card_of(device)});
  });
  keep_on_card(clips, device);
  return clips;
}

}  // namespace

struct FrameLoader::Impl {
  Impl(const Config& config, const FrameLoaderOptions& options)
      : batch(options.batch),
        next_batch(options.first_batch),
        loader(open_clips(config, numbered(options.device)), config, numbered(options.device), options.first_batch) {}

  int batch;
  std::int64_t next_batch;
  TrainingLoader loader;
};

FrameLoader::FrameLoader(const FrameLoaderOptions& options) {
  if (options.scale < 1)
    fail_usage(fmt::format("FrameLoader: scale: {} is out of range, allowed: from 1 up", options.scale));
  if (options.first_batch < 0) {
    fail_usage(fmt::format("FrameLoader: first_batch: {} is out of range, allowed: from 0 up", options.first_batch));
  }
  impl_ = std::make_unique<Impl>(as_config(options), options);
}

FrameLoader::FrameLoader(FrameLoader&&) noexcept = default;
FrameLoader& FrameLoader::operator=(FrameLoader&&) noexcept = default;
FrameLoader::~FrameLoader() = default;

FrameBatch FrameLoader::next() {
  Batch batch = impl_->loader.next(impl_->next_batch, 0, impl_->batch);
  ++impl_->next_batch;
  return {std::move(batch.input), std::move(batch.target)};
}

std::string FrameLoader::describe() const {
  return impl_->loader.describe();
}

}  // namespace reelgrad
