#include <fmt/format.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/record/checkpoint.h"
#include "reelgrad/record/run_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

// "; a good one: …", or empty.
std::string offer(const std::vector<CheckpointInfo>& list) {
  const auto good = std::find_if(list.rbegin(), list.rend(), [](const CheckpointInfo& c) { return c.damage.empty(); });
  return good == list.rend() ? "" : fmt::format("; an undamaged one is {}", good->path.string());
}

[[noreturn]] void fail_damaged(const fs::path& checkpoint, const std::string& damage,
                               const std::vector<CheckpointInfo>& others) {
  fail(fmt::format("the checkpoint {} is damaged: {}{}", checkpoint.string(), damage, offer(others)));
}

fs::path model_of_checkpoint(const fs::path& checkpoint) {
  const std::string damage = find_damage(checkpoint);
  if (!damage.empty()) fail_damaged(checkpoint, damage, list_checkpoints(checkpoint.parent_path().parent_path()));
  return checkpoint / kModelFile;
}

fs::path model_of_run(const fs::path& run) {
  const std::vector<CheckpointInfo> list = list_checkpoints(run);
  if (list.empty()) fail(fmt::format("{}: the run has no checkpoint yet", run.string()));
  // A damaged one that was the best is not passed over in silence.
  const CheckpointInfo* chosen = nullptr;
  for (const CheckpointInfo& info : list) {
    if (info.score && (!chosen || *info.score > *chosen->score)) chosen = &info;
  }
  if (!chosen) chosen = &list.back();
  if (!chosen->damage.empty()) fail_damaged(chosen->path, chosen->damage, list);
  return chosen->path / kModelFile;
}

}  // namespace

fs::path find_model_file(const fs::path& model) {
  // "run/" is run: a trailing slash would hide the parent folder.
  const fs::path path = model.has_filename() ? fs::absolute(model) : fs::absolute(model).parent_path();
  if (!fs::exists(path)) fail(fmt::format("{}: no such file or folder", model.string()));
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path / kCheckpointsFolder)) return model_of_run(path);
  if (fs::exists(path / kModelFile)) return model_of_checkpoint(path);
  fail(fmt::format("{}: neither a run folder (no {}/ in it) nor a checkpoint (no {} in it)", model.string(),
                   kCheckpointsFolder, kModelFile));
}

fs::path find_discriminator_file(const fs::path& discriminator) {
  if (fs::exists(discriminator) && !fs::is_directory(discriminator)) return discriminator;
  const fs::path file = find_model_file(discriminator).parent_path() / kDiscriminatorFile;
  if (fs::exists(file)) return file;
  fail(fmt::format("{}: no {} is there: it was not trained with loss.gan", file.parent_path().string(),
                   kDiscriminatorFile));
}

}  // namespace reelgrad
