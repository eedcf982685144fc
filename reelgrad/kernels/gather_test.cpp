#include "reelgrad/kernels/gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/conversion.h"
#include "reelgrad/kernels/test_picture.h"

namespace reelgrad {
namespace {

std::vector<float> gather_crop(const TestPicture& picture, const ColorSpec& color, NetworkColor to, int x, int y,
                               int width, int height, Orientation orientation = {}) {
  std::vector<float> out(static_cast<std::size_t>(channels(to)) * width * height);
  const CropJob job{picture.ref(), x, y, width, height, orientation, {out.data(), planar_strides(width, height)}};
  cpu::gather({picture.format(), color, to}, {&job, 1});
  return out;
}

TEST(GatherTest, CropIsTheSameRegionOfTheWholePicture) {
  std::mt19937 random(3);
  for (const VideoFormat& format : test_formats()) {
    const TestPicture picture = random_picture(format, 44, 36, random);
    for (const NetworkColor to : {NetworkColor::rgb, NetworkColor::gray, NetworkColor::yuv444}) {
      const ColorSpec color{1, false, static_cast<int>(random() % 6)};
      const std::vector<float> whole = gather_whole(picture, color, to);
      for (int repeat = 0; repeat < 12; ++repeat) {
        const int width = 1 + random() % 44, height = 1 + random() % 36;
        const int x = random() % (45 - width), y = random() % (37 - height);
        const std::vector<float> crop = gather_crop(picture, color, to, x, y, width, height);
        for (int k = 0; k < channels(to); ++k)
          for (int j = 0; j < height; ++j)
            for (int i = 0; i < width; ++i)
              ASSERT_EQ(crop[(k * height + j) * width + i], whole[(k * 36 + y + j) * 44 + x + i])
                  << format.bits << ' ' << x << ' ' << y << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(GatherTest, OrientationsTransposeThenFlip) {
  std::mt19937 random(4);
  const TestPicture picture = random_picture(kYuv420P8, 40, 40, random);
  const int n = 19;
  const std::vector<float> upright = gather_crop(picture, {}, NetworkColor::rgb, 5, 7, n, n);
  for (int bits = 0; bits < 8; ++bits) {
    const Orientation o{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    const std::vector<float> turned = gather_crop(picture, {}, NetworkColor::rgb, 5, 7, n, n, o);
    for (int k = 0; k < 3; ++k)
      for (int y = 0; y < n; ++y)
        for (int x = 0; x < n; ++x) {
          const int fx = o.flip_x ? n - 1 - x : x, fy = o.flip_y ? n - 1 - y : y;
          const int from_x = o.transpose ? fy : fx, from_y = o.transpose ? fx : fy;
          ASSERT_EQ(turned[(k * n + y) * n + x], upright[(k * n + from_y) * n + from_x]) << bits;
        }
  }
}

TEST(GatherTest, FlipsCropsThatAreNotSquare) {
  std::mt19937 random(5);
  const TestPicture picture = random_picture(kGray8, 20, 20, random);
  const auto upright = gather_crop(picture, {}, NetworkColor::gray, 2, 3, 7, 4);
  const auto turned = gather_crop(picture, {}, NetworkColor::gray, 2, 3, 7, 4, {.flip_x = true, .flip_y = true});
  EXPECT_EQ(std::vector<float>(turned.rbegin(), turned.rend()), upright);
  EXPECT_THROW(gather_crop(picture, {}, NetworkColor::gray, 2, 3, 7, 4, {.transpose = true}), Error);
}

TEST(GatherTest, RefusesCropsOutsideThePicture) {
  const TestPicture picture(kGray8, 20, 10);
  EXPECT_THROW(gather_crop(picture, {}, NetworkColor::gray, 14, 0, 7, 4), Error);
  EXPECT_THROW(gather_crop(picture, {}, NetworkColor::gray, 0, -1, 7, 4), Error);
}

// An input crop and its target of twice the size, of two pictures, in one call.
TEST(GatherTest, OneCallCutsManySizes) {
  std::mt19937 random(20);
  const TestPicture small = random_picture(kYuv420P8, 40, 30, random),
                    large = random_picture(kYuv420P8, 80, 60, random);
  TestImage input(ElementType::f32, 3, 13, 13), target(ElementType::f32, 3, 26, 26);
  const CropJob jobs[] = {{small.ref(), 5, 6, 13, 13, {.flip_x = true}, input.mutable_ref()},
                          {large.ref(), 10, 12, 26, 26, {.flip_x = true}, target.mutable_ref()}};
  cpu::gather({kYuv420P8, {}, NetworkColor::rgb}, jobs);
  EXPECT_EQ(input.values(), gather_crop(small, {}, NetworkColor::rgb, 5, 6, 13, 13, {.flip_x = true}));
  EXPECT_EQ(target.values(), gather_crop(large, {}, NetworkColor::rgb, 10, 12, 26, 26, {.flip_x = true}));
}

TEST(GatherTest, EveryElementTypeAndLayoutHoldsTheRoundedSingles) {
  std::mt19937 random(21);
  const TestPicture picture = random_picture(kYuv420P8, 40, 32, random);
  const int n = 21;
  for (const ElementType element : kElementTypes)
    for (const bool channels_last : {false, true})
      for (const NetworkColor to : {NetworkColor::rgb, NetworkColor::gray, NetworkColor::yuv444})
        for (int bits = 0; bits < 8; ++bits) {
          const Orientation o{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
          std::vector<float> expected = gather_crop(picture, {}, to, 7, 4, n, n, o);
          for (float& value : expected) value = rounded_to(element, value);
          TestImage image(element, channels(to), n, n, channels_last, 3);
          TestImage untouched = image;
          const CropJob job{picture.ref(), 7, 4, n, n, o, image.mutable_ref()};
          cpu::gather({kYuv420P8, {}, to, ChromaFilter::bicubic, element}, {&job, 1});
          ASSERT_EQ(image.values(), expected) << static_cast<int>(element) << channels_last << bits;
          untouched.set_values(expected);
          ASSERT_EQ(image.bytes(), untouched.bytes()) << "elements outside the image were written";
        }
}

TEST(GatherTest, BytesBetweenRowsDoNotMatter) {
  for (const VideoFormat& format : test_formats())
    for (const int width : {4, 36, 100}) {
      std::mt19937 a(6), b(6);
      const TestPicture tight = random_picture(format, width, 8, a, 0);
      const TestPicture padded = random_picture(format, width, 8, b, 24, 0xff);  // NaN in every float format
      EXPECT_EQ(gather_whole(tight, {}, NetworkColor::rgb), gather_whole(padded, {}, NetworkColor::rgb));
    }
}

TEST(GatherTest, StripsOfRowsMakeTheWhole) {
  std::mt19937 random(8);
  const TestPicture picture = random_picture(kYuv420P8, 32, 26, random);
  const std::vector<float> whole = gather_whole(picture, {}, NetworkColor::rgb);
  std::vector<float> strips(whole.size());
  const CropJob job{.source = picture.ref(), .width = 32, .height = 26, .out = {strips.data(), planar_strides(32, 26)}};
  const GatherSpec spec{kYuv420P8, {}, NetworkColor::rgb};
  for (const auto& [begin, end] : {std::pair{0, 5}, {5, 20}, {20, 26}}) cpu::gather_rows(spec, job, begin, end);
  EXPECT_EQ(strips, whole);

  TestPicture at_once(kYuv420P8, 32, 26), in_strips(kYuv420P8, 32, 26);
  for (const Rounding rounding : {Rounding::nearest, Rounding::ordered}) {
    const ScatterSpec back{.format = kYuv420P8, .rounding = rounding};
    const ImageRef image{whole.data(), planar_strides(32, 26)};
    cpu::scatter(back, image, at_once.mutable_ref());
    for (const auto& [begin, end] : {std::pair{0, 4}, {4, 18}, {18, 26}})
      cpu::scatter_rows(back, image, in_strips.mutable_ref(), begin, end);
    EXPECT_EQ(in_strips.packed(), at_once.packed());
  }
}

TEST(RoundTripTest, EveryGrayCodeComesBack) {
  for (const int bits : {8, 9, 10, 12, 14, 16})
    for (const bool full : {false, true}) {
      const VideoFormat format{ColorFamily::gray, SampleType::integer, bits, 0, 0};
      const int width = 256, height = (1 << bits) / width;
      TestPicture ramp(format, width, height), back(format, width, height);
      for (int code = 0; code < 1 << bits; ++code)
        std::memcpy(ramp.row(0, code / width) + code % width * format.bytes_per_sample(), &code,
                    format.bytes_per_sample());
      const std::vector<float> tensor = gather_whole(ramp, {1, full, 0}, NetworkColor::gray);
      scatter_whole({.color = {1, full, 0}, .from = NetworkColor::gray}, tensor, back);
      EXPECT_EQ(back.packed(), ramp.packed()) << bits << full;
    }
}

TEST(RoundTripTest, CopiesAreBitEqualAtAwkwardWidths) {
  std::mt19937 random(9);
  for (const ColorFamily family : {ColorFamily::gray, ColorFamily::rgb})
    for (const auto& [type, bits] : {std::pair{SampleType::integer, 8},
                                     {SampleType::integer, 16},
                                     {SampleType::floating, 16},
                                     {SampleType::floating, 32}})
      for (const int width : {1, 31, 33, 101, 720}) {
        const VideoFormat format{family, type, bits, 0, 0};
        const TestPicture picture = random_picture(format, width, 3, random, 8);
        TestPicture back(format, width, 3, 4);
        const NetworkColor network = family == ColorFamily::gray ? NetworkColor::gray : NetworkColor::rgb;
        const std::vector<float> tensor = gather_whole(picture, {0, true, 0}, network);
        scatter_whole({.color = {0, true, 0}, .from = network}, tensor, back);
        EXPECT_EQ(back.packed(), picture.packed()) << bits << ' ' << width;
      }
}

// Ramps of every code in each plane of a YUV444P8 picture, the others neutral.
TestPicture ramps_444() {
  TestPicture ramp({ColorFamily::yuv, SampleType::integer, 8, 0, 0}, 256, 3);
  for (int p = 0; p < 3; ++p)
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 256; ++x) ramp.row(p, y)[x] = static_cast<std::byte>(p == y ? x : 128);
  return ramp;
}

struct Difference {
  int largest = 0;
  double shift = 0;  // on average
};

Difference difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  Difference found;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int d = static_cast<int>(b[i]) - static_cast<int>(a[i]);
    found.largest = std::max(found.largest, std::abs(d));
    found.shift += static_cast<double>(d) / static_cast<double>(a.size());
  }
  return found;
}

// YUV444P8 -> R'G'B' -> YUV444P8: nothing is lost in float.
TEST(RoundTripTest, RampsThroughRgbKeepEveryCode) {
  const TestPicture ramp = ramps_444();
  for (const int matrix : {1, 5, 6, 7, 9})
    for (const bool full : {false, true}) {
      TestPicture back = ramp;
      scatter_whole({.color = {matrix, full, 0}}, gather_whole(ramp, {matrix, full, 0}, NetworkColor::rgb), back);
      EXPECT_EQ(back.packed(), ramp.packed()) << matrix << full;
    }
}

// The 11 bits of a half keep every code as well, bfloat's 8 bits lose up to 1.
TEST(RoundTripTest, RampsThroughNarrowRgb) {
  const TestPicture ramp = ramps_444();
  for (const auto& [element, largest] : {std::pair{ElementType::f16, 0}, {ElementType::bf16, 1}})
    for (const int matrix : {1, 6, 9})
      for (const bool full : {false, true}) {
        TestImage image(element, 3, 256, 3, /*channels_last=*/true);
        const CropJob job{.source = ramp.ref(), .width = 256, .height = 3, .out = image.mutable_ref()};
        const ColorSpec color{matrix, full, 0};
        cpu::gather({.format = ramp.format(), .color = color, .element = element}, {&job, 1});
        TestPicture back = ramp;
        cpu::scatter({.format = ramp.format(), .color = color, .element = element}, image.ref(), back.mutable_ref());
        const Difference d = difference(ramp.packed(), back.packed());
        EXPECT_LE(d.largest, largest) << matrix << full;
        EXPECT_LT(std::abs(d.shift), 0.05) << matrix << full;
      }
}

// YUV420P8 with a ramp of every code in each plane, along x and along y -> R'G'B' -> YUV420P8: chroma's way up and down
// loses nothing either, at the borders included.
TEST(RoundTripTest, RampsOf420KeepEveryCode) {
  const int size = 512;
  TestPicture ramp(kYuv420P8, size, size), back(kYuv420P8, size, size);
  for (int p = 0; p < 3; ++p)
    for (int y = 0; y < ramp.rows(p); ++y)
      for (int x = 0; x < ramp.columns(p); ++x)
        ramp.row(p, y)[x] = static_cast<std::byte>(p == 0 ? (x + y) / 4 : p == 1 ? x : 255 - y);
  for (const ChromaFilter filter : {ChromaFilter::bicubic, ChromaFilter::bilinear})
    for (const int matrix : {1, 6})
      for (const bool full : {false, true})
        for (int location = 0; location < 6; ++location) {
          const ColorSpec color{matrix, full, location};
          scatter_whole({.color = color, .filter = filter}, gather_whole(ramp, color, NetworkColor::rgb, filter), back);
          EXPECT_EQ(back.packed(), ramp.packed()) << matrix << full << location;
        }
}

TEST(ScatterTest, GrayLeavesChromaAlone) {
  std::mt19937 random(10);
  TestPicture picture = random_picture(kYuv420P8, 8, 6, random);
  const std::vector<std::byte> before = picture.packed();
  const std::vector<float> white(48, 1.0f);
  scatter_whole({.color = {1, false, 0}, .from = NetworkColor::gray}, white, picture);
  const std::vector<std::byte> after = picture.packed();
  EXPECT_EQ(std::vector<std::byte>(after.begin(), after.begin() + 48), std::vector<std::byte>(48, std::byte{235}));
  EXPECT_EQ(std::vector<std::byte>(after.begin() + 48, after.end()),
            std::vector<std::byte>(before.begin() + 48, before.end()));
}

TEST(ScatterTest, GrayOnRgbIsThreeEqualPlanes) {
  const VideoFormat format{ColorFamily::rgb, SampleType::integer, 8, 0, 0};
  TestPicture picture(format, 4, 1);
  scatter_whole({.color = {0, true, 0}, .from = NetworkColor::gray}, {0, 0.2f, 0.5f, 1.2f}, picture);
  for (int p = 0; p < 3; ++p) {
    const int expected[] = {0, 51, 128, 255};  // 127.5 is a tie: to even
    for (int x = 0; x < 4; ++x) EXPECT_EQ(static_cast<int>(picture.row(p, 0)[x]), expected[x]);
  }
}

TEST(ScatterTest, FloatsAreNotClamped) {
  const VideoFormat format{ColorFamily::rgb, SampleType::floating, 32, 0, 0};
  TestPicture picture(format, 1, 1);
  const std::vector<float> values{-0.5f, 1.5f, 7.0f};
  for (const Rounding rounding : {Rounding::nearest, Rounding::ordered}) {
    scatter_whole({.color = {0, true, 0}, .rounding = rounding}, values, picture);
    EXPECT_EQ(std::memcmp(picture.packed().data(), values.data(), 3 * sizeof(float)), 0);
  }
}

TEST(ScatterTest, EveryElementTypeAndLayoutIsReadAsSingles) {
  std::mt19937 random(22);
  const int width = 36, height = 20;
  for (const VideoFormat& format : test_formats())
    for (const NetworkColor from : {NetworkColor::rgb, NetworkColor::gray, NetworkColor::yuv444}) {
      const std::vector<float> values = random_values(channels(from) * width * height, random);
      for (const ElementType element : kElementTypes)
        for (const bool channels_last : {false, true}) {
          TestImage image(element, channels(from), width, height, channels_last, 5);
          image.set_values(values);
          TestPicture ours(format, width, height), expected(format, width, height);
          const ScatterSpec spec{.format = format, .color = {6, false, 3}, .from = from, .element = element};
          cpu::scatter(spec, image.ref(), ours.mutable_ref());
          scatter_whole({.color = spec.color, .from = from}, image.values(), expected);
          ASSERT_EQ(ours.packed(), expected.packed()) << format.name() << static_cast<int>(element) << channels_last;
        }
    }
}

TEST(ScatterTest, BytesBetweenRowsAreLeftAlone) {
  std::mt19937 random(23);
  for (const VideoFormat& format : test_formats()) {
    TestPicture padded(format, 36, 8, 28, 0x5a);
    scatter_whole({}, random_values(3 * 36 * 8, random), padded);
    for (int p = 0; p < format.planes(); ++p)
      for (int y = 0; y < padded.rows(p); ++y)
        for (int i = 0; i < 28; ++i)
          ASSERT_EQ(padded.row(p, y)[padded.row_bytes(p) + i], std::byte{0x5a}) << format.name();
  }
}

// A flat value between two codes becomes both of them, each as often as it is near: Bayer's matrix holds every level
// once.
TEST(ScatterTest, OrderedDitherKeepsTheMean) {
  const VideoFormat format{ColorFamily::rgb, SampleType::integer, 8, 0, 0};
  for (const float code : {100.0f, 100.25f, 100.5f, 100.9f}) {
    TestPicture picture(format, 16, 16);
    scatter_whole({.color = {0, true, 0}, .rounding = Rounding::ordered}, std::vector<float>(3 * 256, code / 255),
                  picture);
    for (int p = 0; p < 3; ++p) {
      double sum = 0;
      for (int y = 0; y < 16; ++y)
        for (int x = 0; x < 16; ++x) sum += static_cast<int>(picture.row(p, y)[x]);
      EXPECT_NEAR(sum / 256, code, 1.0 / 256 + 1e-4) << code << ' ' << p;
    }
  }
}

TEST(ScatterTest, DitherLeavesWholeCodesAlone) {
  const TestPicture ramp = ramps_444();
  TestPicture back = ramp;
  scatter_whole({.rounding = Rounding::ordered}, gather_whole(ramp, {}, NetworkColor::rgb), back);
  EXPECT_EQ(back.packed(), ramp.packed());
}

// The values a trainer sees of an 8-bit white, written at 16 bits: times 257 in full range, times 256 in limited.
TEST(ScatterTest, DepthsMeetAtTheRightCodes) {
  const VideoFormat sixteen{ColorFamily::gray, SampleType::integer, 16, 0, 0};
  for (const auto& [full, expected] : {std::pair{true, 65535}, {false, 65280}}) {
    TestPicture white(kGray8, 1, 1), wide(sixteen, 1, 1);
    white.row(0, 0)[0] = std::byte{255};
    const ColorSpec color{1, full, 0};
    scatter_whole({.color = color, .from = NetworkColor::gray}, gather_whole(white, color, NetworkColor::gray), wide);
    std::uint16_t code;
    std::memcpy(&code, wide.row(0, 0), sizeof code);
    EXPECT_EQ(code, expected);
  }
}

}  // namespace
}  // namespace reelgrad
