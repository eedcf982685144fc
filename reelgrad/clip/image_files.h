#pragma once
#include <filesystem>
#include <string>

namespace reelgrad {

// By its name: .png, .jpg, .jpeg, .webp, .bmp, .tif, .tiff, .exr.
bool is_image(const std::filesystem::path& file);

// Digits compare as numbers, so that 2.png comes before 10.png.
bool natural_less(const std::string& a, const std::string& b);

}  // namespace reelgrad
