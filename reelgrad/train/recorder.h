// What the training loop needs from the rooms below it; record/ and restore/ implement these.
#pragma once
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reelgrad/nn/network.h"
#include "reelgrad/nn/weights.h"

namespace reelgrad {

// Of the discriminator; means over the steps since the last record.
struct AdversarialRecord {
  double loss = 0;
  std::vector<std::pair<std::string, double>> losses;  // the terms that `loss` is the sum of; of one term: none
  double real = 0, fake = 0;                           // its logits of real and of made pictures
  double right = 0;                                    // share of its logits that are right
  double gradient_norm = 0;                            // before clipping
  double generator_gradient_norm = 0;                  // the same of the generator; NaN: it took no step
  double learning_rate = 0;
  std::int64_t skipped = 0;
};

// Means over the steps since the last record.
struct StepRecord {
  std::int64_t step = 0;  // done steps
  double loss = 0;        // NaN: only the discriminator took steps
  std::vector<std::pair<std::string, double>>
      losses;  // the weighted terms that `loss` is the sum of; of one term: none
  double learning_rate = 0;
  double steps_per_second = 0;
  double data_wait_share = 0;  // of the wall time, waiting for decoding
  std::int64_t skipped = 0;    // steps skipped for non-finite gradients, since the run's start
  std::int64_t memory_mb = 0;  // allocated on the card at its peak; 0 on the CPU
  std::optional<AdversarialRecord> discriminator;
};

struct QualityScores {
  double psnr_rgb = 0, psnr_y = 0;  // dB
  double ssim_rgb = 0, ssim_y = 0;
  std::optional<double> lpips, dists;  // distances: 0 is equal; where they were measured
};

// Of best_measure(); the higher the better: distances are negative.
inline double score_by(const QualityScores& scores, const std::string& name) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (name == "lpips") return -scores.lpips.value_or(kNone);
  if (name == "dists") return -scores.dists.value_or(kNone);
  if (name == "psnr_y") return scores.psnr_y;
  if (name == "ssim_rgb") return scores.ssim_rgb;
  return name == "ssim_y" ? scores.ssim_y : scores.psnr_rgb;
}

struct ClipQuality {
  std::string name;
  std::int64_t frames = 0;
  QualityScores ours, bicubic;  // means over the frames
};

struct ValidationRecord {
  std::int64_t step = 0;
  std::int64_t frames = 0;
  QualityScores ours, bicubic;       // means over all frames
  std::vector<ClipQuality> clips;    // where there are several
  torch::Tensor preview;             // float32 [3, H, 4 W] on the CPU: input | bicubic | ours | target; undefined: none
  std::string best_by = "psnr_rgb";  // what "best" means: best_measure()
  double score() const { return score_by(ours, best_by); }
};

// Everything that the next step depends on.
struct Snapshot {
  std::int64_t step = 0;
  std::optional<double> best_score;
  std::int64_t best_step = 0;
  bool validation_due = false;  // a stop cut this step's validation short: the resumed run begins with it
  NamedTensors model;           // what users run: the EMA's weights, or the raw ones without EMA
  NamedTensors training;        // raw weights, optimizer, scaler, generators, meters
  NamedTensors discriminator;   // its weights and buffers, under the community's keys; empty: there is none
};

class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void step(const StepRecord& record) = 0;
  virtual void validation(const ValidationRecord& record) = 0;
  virtual void checkpoint(const Snapshot& snapshot) = 0;  // after validation() of the same step
};

class Validator {
 public:
  virtual ~Validator() = default;
  // Leaves the network's weights and mode and every generator as they were. `stop_requested` (may be empty) is polled
  // every frame; nullopt: it said so.
  virtual std::optional<ValidationRecord> validate(Network& network, std::int64_t step,
                                                   const std::function<bool()>& stop_requested) = 0;
};

}  // namespace reelgrad
