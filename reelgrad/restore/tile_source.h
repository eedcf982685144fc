// Where tiles are read from.
#pragma once
#include <torch/types.h>

#include <optional>
#include <vector>

#include "reelgrad/kernels/gather.h"

namespace reelgrad {

struct Rect {
  int x = 0, y = 0, width = 0, height = 0;
};

class TileSource {
 public:
  virtual ~TileSource() = default;
  // Pixels of `part`, which lies in the picture, into `into` [T, C, height, width], on the current stream.
  virtual void read(const Rect& part, const torch::Tensor& into) const = 0;
};

// Pictures in memory that the device reads, and a noise level in a last channel where `into` has one.
class PictureSource : public TileSource {
 public:
  PictureSource(std::vector<PictureRef> frames, const GatherSpec& spec, torch::Device device)
      : frames_(std::move(frames)), spec_(spec), device_(device) {}

  void set_noise_level(double level) { level_ = level; }
  void set_noise_level(torch::Tensor map) { map_ = std::move(map); }  // [1, H, W]

  void read(const Rect& part, const torch::Tensor& into) const override;

 private:
  std::vector<PictureRef> frames_;
  GatherSpec spec_;
  torch::Device device_;
  double level_ = 0;
  torch::Tensor map_;
};

// [T, C, H, W].
class TensorSource : public TileSource {
 public:
  explicit TensorSource(torch::Tensor frames) : frames_(std::move(frames)) {}
  void read(const Rect& part, const torch::Tensor& into) const override;

 private:
  torch::Tensor frames_;
};

// Fills the right and bottom of `tile` [.., height, width] by reflection of its first `rows` and `columns`. A
// reflection can add at most the side less one, so that small pictures take several.
void pad_by_reflection(const torch::Tensor& tile, std::int64_t rows, std::int64_t columns);

}  // namespace reelgrad
