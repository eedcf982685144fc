// Numbers of a run for TensorBoard, in its own format: events.out.tfevents.TIME.reelgrad, a sequence of TFRecords
// (length, masked CRC-32C of it, bytes, masked CRC-32C of them) that are protobuf messages tensorflow.Event.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reelgrad/train/recorder.h"

namespace reelgrad {

class EventFile {
 public:
  // A new file in `folder`; each process has its own. `done_steps`: of a resumed run, for TensorBoard to leave out what
  // older files have of later steps. Throws failed, as all of it, when the volume cannot be written to.
  explicit EventFile(const std::filesystem::path& folder, std::optional<std::int64_t> done_steps = std::nullopt);

  // train/loss, train/losses/TERM, train/lr, train/it_per_s, train/data_wait, train/skipped, train/memory_mb, and
  // discriminator/… under the names of metrics.jsonl. What is not a number is left out.
  void add(const StepRecord& record) const;
  // validation/psnr_rgb and the others, bicubic/psnr_rgb and the others.
  void add(const ValidationRecord& record) const;

 private:
  struct Scalar {
    std::string tag;
    double value;
  };
  static void put(std::vector<Scalar>& scalars, const std::string& group, const QualityScores& scores);
  void add(std::int64_t step, const std::vector<Scalar>& scalars) const;
  void append(const std::string& event) const;

  std::filesystem::path file_;
};

// CRC-32C (Castagnoli: RFC 3720, B.4).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace reelgrad
