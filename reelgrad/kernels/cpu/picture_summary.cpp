#include "reelgrad/kernels/picture_summary.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "reelgrad/kernels/summary_cells.h"

namespace reelgrad::cpu {
namespace {

template <class Sample>
const Sample* row_of(const PictureRef& picture, int plane, int y) {
  return reinterpret_cast<const Sample*>(picture.plane[plane] + picture.stride_bytes[plane] * y);
}

// Sums of columns over rows [begin, end), four rows at a time so that the sums are loaded and stored less often.
template <class Sample, class Sum, class Code>
void add_rows(const PictureRef& picture, int plane, int begin, int end, Sum* __restrict sums, Code code) {
  const int width = picture.width;
  int y = begin;
  for (; y + 4 <= end; y += 4) {
    const Sample* __restrict a = row_of<Sample>(picture, plane, y);
    const Sample* __restrict b = row_of<Sample>(picture, plane, y + 1);
    const Sample* __restrict c = row_of<Sample>(picture, plane, y + 2);
    const Sample* __restrict d = row_of<Sample>(picture, plane, y + 3);
    for (int x = 0; x < width; ++x) {
      sums[x] = static_cast<Sum>(sums[x] + static_cast<Sum>(code(a[x]) + code(b[x])) +
                                 static_cast<Sum>(code(c[x]) + code(d[x])));
    }
  }
  for (; y < end; ++y) {
    const Sample* __restrict a = row_of<Sample>(picture, plane, y);
    for (int x = 0; x < width; ++x) sums[x] = static_cast<Sum>(sums[x] + static_cast<Sum>(code(a[x])));
  }
}

// `strip_rows` rows of the largest code fit a Sum.
template <class Sample, class Sum, class Code>
PictureSummary summarize_as(const VideoFormat& format, const PictureRef& picture, int strip_rows, Code code) {
  const int plane = summary_plane(format), bits = summary_bits(format);
  thread_local std::vector<Sum> sums;
  sums.resize(static_cast<std::size_t>(picture.width));
  std::array<CellRange, kSummaryColumns> columns;
  for (int i = 0; i < kSummaryColumns; ++i) columns[i] = cell_range(i, kSummaryColumns, picture.width);
  PictureSummary summary;
  for (int j = 0; j < kSummaryRows; ++j) {
    const CellRange rows = cell_range(j, kSummaryRows, picture.height);
    std::array<std::uint64_t, kSummaryColumns> cells{};
    for (int y = rows.begin; y < rows.end; y += strip_rows) {
      std::fill(sums.begin(), sums.end(), Sum{0});
      add_rows<Sample>(picture, plane, y, std::min(y + strip_rows, rows.end), sums.data(), code);
      for (int i = 0; i < kSummaryColumns; ++i)
        for (int x = columns[i].begin; x < columns[i].end; ++x) cells[i] += sums[static_cast<std::size_t>(x)];
    }
    for (int i = 0; i < kSummaryColumns; ++i) {
      const auto count = static_cast<std::uint64_t>(columns[i].end - columns[i].begin) *
                         static_cast<std::uint64_t>(rows.end - rows.begin);
      summary.cell[j * kSummaryColumns + i] = cell_mean(cells[i], count, bits);
    }
  }
  return summary;
}

}  // namespace

PictureSummary summarize(const VideoFormat& format, const PictureRef& picture) {
  constexpr int kStrip8 = 65535 / 255, kStrip16 = 65536;
  switch (summary_storage(format)) {
    case Storage::u8:
      return summarize_as<std::uint8_t, std::uint16_t>(format, picture, kStrip8, [](std::uint8_t v) { return v; });
    case Storage::u16:
      return summarize_as<std::uint16_t, std::uint32_t>(format, picture, kStrip16,
                                                        [](std::uint16_t v) { return std::uint32_t{v}; });
    case Storage::half:
      return summarize_as<std::uint16_t, std::uint32_t>(
          format, picture, kStrip16, [](std::uint16_t v) { return summary_code(single_of_half(v)); });
    case Storage::single:
      return summarize_as<float, std::uint32_t>(format, picture, kStrip16, [](float v) { return summary_code(v); });
  }
  return {};
}

bool same_picture(const VideoFormat& format, const PictureRef& a, const PictureRef& b) {
  for (int plane = 0; plane < format.planes(); ++plane) {
    const auto row_bytes = static_cast<std::size_t>(format.plane_width(a.width, plane)) *
                           static_cast<std::size_t>(format.bytes_per_sample());
    const int rows = format.plane_height(a.height, plane);
    for (int y = 0; y < rows; ++y) {
      if (std::memcmp(row_of<std::byte>(a, plane, y), row_of<std::byte>(b, plane, y), row_bytes) != 0) return false;
    }
  }
  return true;
}

}  // namespace reelgrad::cpu
