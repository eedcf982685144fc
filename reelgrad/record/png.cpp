#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <fmt/format.h>
#include <stb/stb_image_write.h>
#include <torch/torch.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/record/run_folder.h"

namespace reelgrad {
namespace {

constexpr int kCompression = 5;  // of 5 to 8: a preview is looked at once, and training waits for it

}  // namespace

void write_png(const std::filesystem::path& path, const torch::Tensor& image) {
  TORCH_CHECK(image.dim() == 3 && (image.size(0) == 1 || image.size(0) == 3), "[1 or 3, H, W] expected, got ",
              image.sizes());
  const torch::Tensor pixels =  // [H, W, C]
      image.detach()
          .to(torch::kCPU, torch::kFloat32)
          .clamp(0, 1)
          .mul(255)
          .round()
          .to(torch::kUInt8)
          .permute({1, 2, 0})
          .contiguous();
  const auto height = static_cast<int>(pixels.size(0)), width = static_cast<int>(pixels.size(1)),
             channels = static_cast<int>(pixels.size(2));
  stbi_write_png_compression_level = kCompression;
  std::string bytes;
  const auto append = [](void* to, void* data, int size) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), static_cast<std::size_t>(size));
  };
  if (!stbi_write_png_to_func(append, &bytes, width, height, channels, pixels.const_data_ptr(), width * channels)) {
    fail(fmt::format("cannot encode {}: {}x{} pixels", path.string(), width, height));
  }
  write_file_atomically(path, bytes);
}

}  // namespace reelgrad
