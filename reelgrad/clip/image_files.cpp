#include "reelgrad/clip/image_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "reelgrad/clip/file_name.h"

namespace reelgrad {

bool is_image(const std::filesystem::path& file) {
  static constexpr std::array kExtensions{".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".exr"};
  const std::string extension = lower_extension(file);
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

bool natural_less(const std::string& a, const std::string& b) {
  const auto digits = [](const std::string& text, std::size_t from) {
    std::size_t end = from;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    return end - from;
  };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const std::size_t m = digits(a, i), n = digits(b, j);
    if (m > 0 && n > 0) {
      const auto significant = [](std::string_view number) {
        number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
        return number;
      };
      const std::string_view x = significant(std::string_view(a).substr(i, m));
      const std::string_view y = significant(std::string_view(b).substr(j, n));
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i += m;
      j += n;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // 1.png and 01.png
}

}  // namespace reelgrad
