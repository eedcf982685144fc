// Pictures in memory for tests of kernels and frames.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "reelgrad/kernels/conversion.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// A host picture whose rows carry `padding` extra bytes, filled with `junk`.
class TestPicture {
 public:
  TestPicture(VideoFormat format, int width, int height, int padding = 0, int junk = 0xff)
      : format_(format), width_(width), height_(height) {
    for (int p = 0; p < format.planes(); ++p) {
      stride_[p] = row_bytes(p) + padding;
      plane_[p].assign(static_cast<std::size_t>(stride_[p]) * rows(p), static_cast<std::byte>(junk));
    }
  }

  // Planes one after the other, rows packed.
  void set(const std::byte* packed) {
    for (int p = 0; p < format_.planes(); ++p)
      for (int y = 0; y < rows(p); ++y, packed += row_bytes(p)) std::memcpy(row(p, y), packed, row_bytes(p));
  }

  std::vector<std::byte> packed() const {
    std::vector<std::byte> out;
    for (int p = 0; p < format_.planes(); ++p)
      for (int y = 0; y < rows(p); ++y)
        out.insert(out.end(), plane_[p].data() + stride_[p] * y, plane_[p].data() + stride_[p] * y + row_bytes(p));
    return out;
  }

  std::byte* row(int p, int y) { return plane_[p].data() + stride_[p] * y; }
  int columns(int p) const { return format_.plane_width(width_, p); }
  int rows(int p) const { return format_.plane_height(height_, p); }
  std::ptrdiff_t row_bytes(int p) const { return columns(p) * format_.bytes_per_sample(); }
  const VideoFormat& format() const { return format_; }

  PictureRef ref() const {
    PictureRef ref{.width = width_, .height = height_};
    for (int p = 0; p < format_.planes(); ++p) {
      ref.plane[p] = plane_[p].data();
      ref.stride_bytes[p] = stride_[p];
    }
    return ref;
  }

  MutablePictureRef mutable_ref() {
    MutablePictureRef ref{.width = width_, .height = height_};
    for (int p = 0; p < format_.planes(); ++p) {
      ref.plane[p] = plane_[p].data();
      ref.stride_bytes[p] = stride_[p];
    }
    return ref;
  }

 private:
  VideoFormat format_;
  int width_, height_;
  std::ptrdiff_t stride_[3] = {};
  std::vector<std::byte> plane_[3];
};

inline std::vector<float> gather_whole(const TestPicture& picture, const ColorSpec& color, NetworkColor to) {
  const PictureRef ref = picture.ref();
  std::vector<float> out(static_cast<std::size_t>(channels(to)) * ref.width * ref.height);
  const CropJob job{.source = ref, .out = out.data()};
  cpu::gather({picture.format(), color, to, ref.width, ref.height}, {&job, 1});
  return out;
}

// Every family, storage and subsampling.
inline std::vector<VideoFormat> test_formats() {
  std::vector<VideoFormat> formats;
  for (const auto& [type, bits] : {std::pair{SampleType::integer, 8},
                                   {SampleType::integer, 10},
                                   {SampleType::integer, 16},
                                   {SampleType::floating, 16},
                                   {SampleType::floating, 32}}) {
    formats.push_back({ColorFamily::gray, type, bits, 0, 0});
    formats.push_back({ColorFamily::rgb, type, bits, 0, 0});
    for (int sw = 0; sw <= 2; ++sw)
      for (int sh = 0; sh <= 2; ++sh) formats.push_back({ColorFamily::yuv, type, bits, sw, sh});
  }
  return formats;
}

// Any code of an integer format, [0, 1) in a float one.
inline TestPicture random_picture(const VideoFormat& format, int width, int height, std::mt19937& random,
                                  int padding = 0, int junk = 0xff) {
  TestPicture picture(format, width, height, padding, junk);
  for (int p = 0; p < format.planes(); ++p)
    for (int y = 0; y < picture.rows(p); ++y)
      for (int x = 0; x < picture.columns(p); ++x) {
        const float value = static_cast<float>(random() >> 8) * 0x1p-24f;
        std::uint32_t sample = random() & ((1u << (format.bits & 31)) - 1);
        if (format.is_float()) sample = format.bits == 16 ? half_of_single(value) : float_bits(value);
        std::memcpy(picture.row(p, y) + x * format.bytes_per_sample(), &sample, format.bytes_per_sample());
      }
  return picture;
}

}  // namespace reelgrad
