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

inline constexpr VideoFormat kGray8{ColorFamily::gray, SampleType::integer, 8, 0, 0};
inline constexpr VideoFormat kYuv420P8{ColorFamily::yuv, SampleType::integer, 8, 1, 1};

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

// An image of a tensor in host memory, planar or channels_last, `gap` elements after each row. All bytes start as junk.
class TestImage {
 public:
  TestImage(ElementType element, int channels, int width, int height, bool channels_last = false, int gap = 0)
      : element_(element), channels_(channels), width_(width), height_(height) {
    strides_ = channels_last ? channels_last_strides(channels, width) : planar_strides(width, height);
    strides_.row += gap;
    if (!channels_last) strides_.channel += static_cast<std::ptrdiff_t>(gap) * height;
    const std::size_t elements = (static_cast<std::size_t>(width) * channels + gap * channels) * height;
    bytes_.assign(elements * element_bytes(element), std::byte{0xa5});
  }

  MutableImageRef mutable_ref() { return {bytes_.data(), strides_}; }
  ImageRef ref() const { return {bytes_.data(), strides_}; }

  float at(int channel, int y, int x) const {
    const std::byte* from = bytes_.data() + offset(channel, y, x);
    std::uint32_t bits = 0;
    std::memcpy(&bits, from, element_bytes(element_));
    if (element_ == ElementType::f32) return bits_float(bits);
    const auto narrow = static_cast<std::uint16_t>(bits);
    return element_ == ElementType::f16 ? single_of_half(narrow) : single_of_bfloat(narrow);
  }

  void set(int channel, int y, int x, float value) {
    const std::uint32_t bits = element_ == ElementType::f32   ? float_bits(value)
                               : element_ == ElementType::f16 ? half_of_single(value)
                                                              : bfloat_of_single(value);
    std::memcpy(bytes_.data() + offset(channel, y, x), &bits, element_bytes(element_));
  }

  // Every value, in the order of [C, H, W].
  std::vector<float> values() const {
    std::vector<float> out;
    for (int c = 0; c < channels_; ++c)
      for (int y = 0; y < height_; ++y)
        for (int x = 0; x < width_; ++x) out.push_back(at(c, y, x));
    return out;
  }

  void set_values(const std::vector<float>& values) {
    for (int c = 0, i = 0; c < channels_; ++c)
      for (int y = 0; y < height_; ++y)
        for (int x = 0; x < width_; ++x) set(c, y, x, values[i++]);
  }

  ElementType element() const { return element_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::size_t offset(int channel, int y, int x) const {
    return static_cast<std::size_t>(channel * strides_.channel + y * strides_.row + x * strides_.pixel) *
           element_bytes(element_);
  }

  ElementType element_;
  int channels_, width_, height_;
  ImageStrides strides_;
  std::vector<std::byte> bytes_;
};

inline constexpr ElementType kElementTypes[] = {ElementType::f32, ElementType::f16, ElementType::bf16};

// What an element of this type holds of a value.
inline float rounded_to(ElementType element, float value) {
  if (element == ElementType::f16) return single_of_half(half_of_single(value));
  return element == ElementType::bf16 ? single_of_bfloat(bfloat_of_single(value)) : value;
}

// The whole picture, [C, H, W].
inline std::vector<float> gather_whole(const TestPicture& picture, const ColorSpec& color, NetworkColor to,
                                       ChromaFilter filter = ChromaFilter::bicubic) {
  const PictureRef ref = picture.ref();
  std::vector<float> out(static_cast<std::size_t>(channels(to)) * ref.width * ref.height);
  const CropJob job{.source = ref,
                    .width = ref.width,
                    .height = ref.height,
                    .out = {out.data(), planar_strides(ref.width, ref.height)}};
  cpu::gather({picture.format(), color, to, filter}, {&job, 1});
  return out;
}

// Values [C, H, W] into the whole picture; spec.format and spec.element are the picture's and f32.
inline void scatter_whole(ScatterSpec spec, const std::vector<float>& values, TestPicture& picture) {
  spec.format = picture.format();
  const MutablePictureRef out = picture.mutable_ref();
  cpu::scatter(spec, {values.data(), planar_strides(out.width, out.height)}, out);
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

// A little beyond [0, 1].
inline std::vector<float> random_values(int count, std::mt19937& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() >> 8) * 0x1.2p-24f - 0.0625f;
  return values;
}

}  // namespace reelgrad
