#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reelgrad/base/text.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/image_pairs.h"
#include "reelgrad/restore/feature_measures.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/train/recorder.h"

namespace reelgrad {

// Frames to measure on: [begin, end) of a checked pair.
struct ValidationClip {
  std::string name;
  ClipPair pair;
  std::int64_t begin = 0, end = 0;
};

// The images of the range as clips of one frame each: they differ in size.
std::vector<ValidationClip> image_clips(const ImagePairs& images, FrameRange range);

struct ClipScores {
  std::string name;
  std::int64_t frames = 0;
  QualityScores ours, bicubic;
};

// Means over the frames of each clip. Restored frames are measured as a file would hold them, rounded to the target's
// format. `on_frame(done, total)` for progress (each frame twice: the network's and bicubic's); false stops early with
// interrupted.
std::vector<ClipScores> measure(Restorer& restorer, const std::vector<ValidationClip>& clips,
                                const ColorOverrides& overrides,
                                const std::function<bool(std::int64_t done, std::int64_t total)>& on_frame = {});

// Mean over all frames of all clips.
ClipScores overall(const std::vector<ClipScores>& clips);

// input (enlarged by nearest) | bicubic | ours | target side by side: float32 [3, H, 4 W] on the CPU; without a target
// clip, the first three.
torch::Tensor comparison(Restorer& restorer, const ValidationClip& clip, std::int64_t frame,
                         const ColorOverrides& overrides);

// The trainer's Validator: measures a copy of the network on these clips; bicubic's scores are computed once. With
// `features` its measures too; null: none.
std::unique_ptr<Validator> make_validator(std::vector<ValidationClip> clips, const NetworkSpec& spec,
                                          const ColorOverrides& overrides, torch::Device device,
                                          std::unique_ptr<FeatureMeasures> features = nullptr);

}  // namespace reelgrad
