// Two folders of images, the inputs and the targets, paired by name: a training set without a script.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "reelgrad/clip/clip.h"

namespace reelgrad {

struct ImagePair {
  std::filesystem::path input, target;
  PictureSize size;  // of the input, the file's own rotation applied; the target is `scale` times as large
};

// Images match when their path below the folder is the same but for the file's ending and what tells the sides apart at
// the end of its name: "x2", "_x4", "x4m", "_LR", "_HR", "_LQ", "_GT". Sizes may differ from pair to pair. Copies share
// the contents. Thread-safe.
class ImagePairs {
 public:
  // Reads the header of every image and decodes none. Throws usage: no such folder, no images in it, images without a
  // partner, a target that is not `scale` times its input, an animation; failed: no plugin reads images, or a file is
  // none.
  static ImagePairs open(const std::filesystem::path& input_folder, const std::filesystem::path& target_folder,
                         int scale, const OpenOptions& options = {});

  const std::vector<ImagePair>& list() const;  // in natural order of their names

  // These pictures, in this order, as frames. A clip has one format, which holds all of its folder's pictures exactly:
  // Gray only when all are gray, 16 bits as soon as one has more than 8, lossy WebP as RGB. Alpha is left out, with one
  // warning a folder. Frame::view() has each picture's own size; info().width and height are the largest.
  ClipPair clips(const std::vector<std::size_t>& which) const;

 private:
  struct Impl;
  explicit ImagePairs(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace reelgrad
