#include "reelgrad/kernels/color.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/conversion.h"
#include "reelgrad/kernels/test_picture.h"

namespace reelgrad {
namespace {

VideoFormat integer(ColorFamily family, int bits) {
  return {family, SampleType::integer, bits, 0, 0};
}

// One pixel of codes through gather.
std::vector<float> gather_pixel(const VideoFormat& format, const ColorSpec& color, NetworkColor to,
                                const std::vector<int>& codes) {
  TestPicture picture(format, 1, 1);
  for (int p = 0; p < format.planes(); ++p) std::memcpy(picture.row(p, 0), &codes[p], format.bytes_per_sample());
  return gather_whole(picture, color, to);
}

TEST(ColorTest, RejectsMatricesWeLackByNumber) {
  for (const int matrix : {0, 2, 3, 8, 10, 14}) {
    try {
      luma_weights(matrix);
      FAIL() << matrix;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(e.what()).find("matrix " + std::to_string(matrix)), std::string::npos) << e.what();
    }
  }
}

TEST(ColorTest, RejectsDepthsThatNoClipHas) {
  EXPECT_THROW(make_conversion(integer(ColorFamily::gray, 17), {}, NetworkColor::gray), Error);
  EXPECT_THROW(make_conversion({ColorFamily::gray, SampleType::floating, 24, 0, 0}, {}, NetworkColor::gray), Error);
  try {
    make_conversion({ColorFamily::yuv, SampleType::integer, 32, 1, 1}, {}, NetworkColor::rgb);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("YUV420P32"), std::string::npos) << e.what();
  }
}

// Computed by hand from H.273 for limited 8-bit Y, Cb, Cr = 81, 90, 240.
TEST(ColorTest, MatrixDecidesTheRed) {
  const struct {
    int matrix;
    float rgb[3];
  } rows[] = {{6, {0.998f, -0.002f, -0.004f}}, {1, {1.084f, 0.095f, -0.018f}}, {9, {1.034f, 0.039f, -0.022f}}};
  for (const auto& row : rows) {
    const auto rgb =
        gather_pixel(integer(ColorFamily::yuv, 8), {row.matrix, false, 0}, NetworkColor::rgb, {81, 90, 240});
    for (int k = 0; k < 3; ++k) EXPECT_NEAR(rgb[k], row.rgb[k], 0.002f) << row.matrix << ' ' << k;
  }
}

// A network that changes nothing gives the same codes back, whatever the tag says, also where R'G'B' leaves [0, 1].
TEST(ColorTest, TheRedComesBack) {
  const VideoFormat format = integer(ColorFamily::yuv, 8);
  for (const int matrix : {6, 1, 9}) {
    TestPicture picture(format, 16, 16), back(format, 16, 16);
    const int red[] = {81, 90, 240};
    for (int p = 0; p < 3; ++p)
      for (int y = 0; y < 16; ++y) std::memset(picture.row(p, y), red[p], 16);
    scatter_whole({.color = {matrix, false, 0}}, gather_whole(picture, {matrix, false, 0}, NetworkColor::rgb), back);
    EXPECT_EQ(back.packed(), picture.packed()) << matrix;
  }
}

TEST(ColorTest, RangeDecidesBlackAndWhite) {
  const auto gray = [](int bits, bool full, int code) {
    return gather_pixel(integer(ColorFamily::gray, bits), {1, full, 0}, NetworkColor::gray, {code})[0];
  };
  EXPECT_FLOAT_EQ(gray(8, false, 16), 0.0f);
  EXPECT_FLOAT_EQ(gray(8, false, 235), 1.0f);
  EXPECT_NEAR(gray(8, false, 126), 0.5023f, 5e-5f);
  EXPECT_NEAR(gray(8, true, 16), 0.0627f, 5e-5f);
  EXPECT_NEAR(gray(8, true, 235), 0.9216f, 5e-5f);
  EXPECT_FLOAT_EQ(gray(8, true, 255), 1.0f);
  EXPECT_FLOAT_EQ(gray(16, true, 65535), 1.0f);
  EXPECT_FLOAT_EQ(gray(8, false, 255), gray(16, false, 65280));

  const auto ten = gather_pixel(integer(ColorFamily::yuv, 10), {1, false, 0}, NetworkColor::yuv444, {500, 700, 100});
  EXPECT_NEAR(ten[0], (500 - 64) / 876.0, 1e-6);
  EXPECT_NEAR(ten[1], (700 - 512) / 896.0 + 0.5, 1e-6);
  EXPECT_NEAR(ten[2], (100 - 512) / 896.0 + 0.5, 1e-6);
}

TEST(ColorTest, GrayAndRgbMeetEachOther) {
  const auto rgb = gather_pixel(integer(ColorFamily::gray, 8), {1, true, 0}, NetworkColor::rgb, {51});
  EXPECT_EQ(rgb, std::vector<float>(3, rgb[0]));
  EXPECT_FLOAT_EQ(rgb[0], 0.2f);
  const auto yuv = gather_pixel(integer(ColorFamily::gray, 8), {1, true, 0}, NetworkColor::yuv444, {51});
  EXPECT_EQ(yuv, (std::vector<float>{rgb[0], 0.5f, 0.5f}));
  const auto luma = gather_pixel(integer(ColorFamily::rgb, 8), {0, true, 0}, NetworkColor::gray, {255, 0, 0});
  EXPECT_FLOAT_EQ(luma[0], 0.2126f);
}

TEST(HalfTest, EveryHalfIsItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const float value = single_of_half(half);
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(single_of_half(half_of_single(value))));
      continue;
    }
    const double magnitude = exponent == 31  ? std::numeric_limits<double>::infinity()
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(value, static_cast<float>(bits & 0x8000 ? -magnitude : magnitude)) << bits;
    ASSERT_EQ(half_of_single(value), half);
  }
}

TEST(HalfTest, RoundsToNearestAndTiesToEven) {
  for (std::uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float middle = 0.5f * (single_of_half(low) + single_of_half(high));
    ASSERT_EQ(half_of_single(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(half_of_single(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(half_of_single(std::nextafter(middle, 1e9f)), high) << low;
  }
  EXPECT_EQ(half_of_single(65519.0f), 0x7bff);
  EXPECT_EQ(half_of_single(65520.0f), 0x7c00);  // infinity
}

TEST(BfloatTest, EveryBfloatIsItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto bfloat = static_cast<std::uint16_t>(bits);
    const float value = single_of_bfloat(bfloat);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(single_of_bfloat(bfloat_of_single(value))));
      continue;
    }
    ASSERT_EQ(float_bits(value), bits << 16);
    ASSERT_EQ(bfloat_of_single(value), bfloat);
  }
  EXPECT_TRUE(std::isnan(single_of_bfloat(bfloat_of_single(bits_float(0x7f800001u)))));  // a NaN of low bits alone
}

TEST(BfloatTest, RoundsToNearestAndTiesToEven) {
  for (std::uint16_t low = 0; low < 0x7f7f; ++low) {
    const float middle = bits_float((static_cast<std::uint32_t>(low) << 16) + 0x8000u);
    ASSERT_EQ(bfloat_of_single(middle), low % 2 == 0 ? low : low + 1) << low;
    ASSERT_EQ(bfloat_of_single(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(bfloat_of_single(std::nextafter(middle, std::numeric_limits<float>::infinity())), low + 1) << low;
  }
  EXPECT_EQ(bfloat_of_single(std::numeric_limits<float>::max()), 0x7f80);  // infinity
}

// The corner of the matrix in Bayer, "An optimum method for two-level rendition of continuous-tone pictures" (1973),
// times 16 as its 16x16 form has it.
TEST(DitherTest, IsBayersMatrix) {
  const int corner[4][4] = {{0, 192, 48, 240}, {128, 64, 176, 112}, {32, 224, 16, 208}, {160, 96, 144, 80}};
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 4; ++x) {
      const float expected = static_cast<float>(corner[y][x] + 1) / 257.0f - 0.5f;
      EXPECT_EQ(ordered_dither(0, x, y), expected);
      EXPECT_EQ(ordered_dither(0, x + 32, y + 16), expected);
      EXPECT_EQ(ordered_dither(1, 15 - x, y), expected);
      EXPECT_EQ(ordered_dither(2, x, 15 - y), expected);
    }
}

TEST(CodeTest, RoundsToNearestClampsAndSurvivesNan) {
  const CodeRange eight{.offset = 0, .to_value = 1.0f / 255, .to_code = 255, .largest = 255};
  EXPECT_EQ(code_of_value(eight, 100.4f / 255), 100);
  EXPECT_EQ(code_of_value(eight, 100.6f / 255), 101);
  EXPECT_EQ(code_of_value(eight, -3.0f), 0);
  EXPECT_EQ(code_of_value(eight, 1.7f), 255);
  EXPECT_EQ(code_of_value(eight, std::numeric_limits<float>::infinity()), 255);
  EXPECT_EQ(code_of_value(eight, std::numeric_limits<float>::quiet_NaN()), 0);
}

TEST(MirrorTest, RepeatsTheBorderSample) {
  const int four[] = {3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0, 0};
  for (int i = -5; i < 9; ++i) {
    const int expected = i < -4 ? 3 : i > 7 ? 0 : four[i + 5];
    EXPECT_EQ(mirror(i, 4), expected) << i;
  }
  for (int i = -3; i < 4; ++i) EXPECT_EQ(mirror(i, 1), 0);
}

}  // namespace
}  // namespace reelgrad
