#include <fmt/format.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/clip.h"

namespace reelgrad {
namespace {

std::string list_outputs(const Script& script) {
  std::vector<std::string> words;
  for (const int index : script.outputs()) words.push_back(std::to_string(index));
  return join(words, ", ");
}

Clip required_output(const Script& script, int index) {
  if (const auto clip = script.output(index)) return *clip;
  const char* role = index == 0 ? "the target" : "the input";
  if (!script.is_script()) {
    fail_usage(
        fmt::format("{}: a training clip must be a script (.vpy) whose output 0 is the target and output 1 the "
                    "input; this is a video",
                    script.path().string()));
  }
  fail_usage(fmt::format("{}: no output {} ({}); the script sets: {}. Add a line such as {}.set_output({})",
                         script.path().string(), index, role, list_outputs(script), index == 0 ? "target" : "degraded",
                         index));
}

// The resize call that makes the pair fit: the input from the target where that divides, else a cropped target first.
std::string fitting_line(const ClipInfo& target, int scale) {
  const int width = target.width / scale, height = target.height / scale;
  if (target.width % scale == 0 && target.height % scale == 0) {
    return fmt::format("target.resize.Bicubic({}, {}).set_output(1)", width, height);
  }
  // Both sizes must also suit the chroma planes.
  const int fit_width = width >> target.format.subsampling_w << target.format.subsampling_w;
  const int fit_height = height >> target.format.subsampling_h << target.format.subsampling_h;
  return fmt::format("target = target.std.CropAbs({}, {}), then target.resize.Bicubic({}, {}).set_output(1)",
                     fit_width * scale, fit_height * scale, fit_width, fit_height);
}

}  // namespace

ClipPair ClipPair::on_gpu(const GpuFrameTarget& card) const {
  return {target.on_gpu(card), input.on_gpu(card), scale};
}

ClipPair training_pair(const Script& script, int scale) {
  const ClipPair pair{required_output(script, 0), required_output(script, 1), scale};
  const ClipInfo &target = pair.target.info(), &input = pair.input.info();
  const std::string path = script.path().string();
  if (target.frames != input.frames) {
    fail_usage(
        fmt::format("{}: output 0 (target) has {} frames, output 1 (input) {}; they must be equal: {}.std.Trim("
                    "length={})",
                    path, target.frames, input.frames, target.frames > input.frames ? "target" : "input",
                    std::min(target.frames, input.frames)));
  }
  if (target.width != input.width * scale || target.height != input.height * scale) {
    fail_usage(
        fmt::format("{}: output 0 (target) is {}, output 1 (input) {}; with model.scale = {} the target must be "
                    "{}: write {}, or change model.scale",
                    path, size_text({target.width, target.height}), size_text({input.width, input.height}), scale,
                    size_text({input.width * scale, input.height * scale}), fitting_line(target, scale)));
  }
  return pair;
}

Clip input_clip(const Script& script) {
  if (script.is_script() && script.output(0) && script.output(1)) return *script.output(1);
  if (const auto clip = script.output(0)) return *clip;
  fail_usage(fmt::format("{}: no output 0; the script sets: {}. End it with clip.set_output()", script.path().string(),
                         list_outputs(script)));
}

}  // namespace reelgrad
