// metrics.jsonl: one JSON object a line, of a step or of a validation.
#pragma once
#include <cstdint>
#include <filesystem>

#include "reelgrad/train/recorder.h"

namespace reelgrad {

// {"step", "loss", "losses": {name: weighted term} (of more than one), "lr", "it_per_s", "data_wait", "skipped",
// "memory_mb", "time"}; time: seconds since 1970. In adversarial training also "discriminator": {"loss", "losses",
// "real", "fake", "right", "grad_norm", "generator_grad_norm", "lr", "skipped"}. null: no step had it.
void append_metrics(const std::filesystem::path& file, const StepRecord& record);

// {"step", "validation": {"ours": {"psnr_rgb", "psnr_y", "ssim_rgb", "ssim_y"; "lpips", "dists" where measured},
// "bicubic": {the same}, "frames"}, "time"}
void append_metrics(const std::filesystem::path& file, const ValidationRecord& record);

// Leaves the lines of steps up to `last_step`; also drops a line that a killed process left unfinished.
void cut_metrics(const std::filesystem::path& file, std::int64_t last_step);

}  // namespace reelgrad
