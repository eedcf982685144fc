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

constexpr VideoFormat kYuv420P8{ColorFamily::yuv, SampleType::integer, 8, 1, 1};
constexpr VideoFormat kGray8{ColorFamily::gray, SampleType::integer, 8, 0, 0};

std::vector<float> gather_crop(const TestPicture& picture, const ColorSpec& color, NetworkColor to, int x, int y,
                               int width, int height, Orientation orientation = {}) {
  std::vector<float> out(static_cast<std::size_t>(channels(to)) * width * height);
  const CropJob job{picture.ref(), x, y, orientation, out.data()};
  cpu::gather({picture.format(), color, to, width, height}, {&job, 1});
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
  const CropJob job{.source = picture.ref(), .out = strips.data()};
  const GatherSpec spec{kYuv420P8, {}, NetworkColor::rgb, 32, 26};
  for (const auto& [begin, end] : {std::pair{0, 5}, {5, 20}, {20, 26}}) cpu::gather_rows(spec, job, begin, end);
  EXPECT_EQ(strips, whole);

  TestPicture at_once(kYuv420P8, 32, 26), in_strips(kYuv420P8, 32, 26);
  const ScatterSpec back{kYuv420P8, {}, NetworkColor::rgb};
  cpu::scatter(back, whole.data(), at_once.mutable_ref());
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 18}, {18, 26}})
    cpu::scatter_rows(back, whole.data(), in_strips.mutable_ref(), begin, end);
  EXPECT_EQ(in_strips.packed(), at_once.packed());
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
      cpu::scatter({format, {1, full, 0}, NetworkColor::gray}, tensor.data(), back.mutable_ref());
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
        cpu::scatter({format, {0, true, 0}, network}, tensor.data(), back.mutable_ref());
        EXPECT_EQ(back.packed(), picture.packed()) << bits << ' ' << width;
      }
}

// Ramps of every code in each plane, YUV444P8 -> R'G'B' -> YUV444P8: nothing is lost in float.
TEST(RoundTripTest, RampsThroughRgbKeepEveryCode) {
  const VideoFormat format{ColorFamily::yuv, SampleType::integer, 8, 0, 0};
  for (const int matrix : {1, 5, 6, 7, 9})
    for (const bool full : {false, true}) {
      TestPicture ramp(format, 256, 3), back(format, 256, 3);
      for (int p = 0; p < 3; ++p)
        for (int y = 0; y < 3; ++y)
          for (int x = 0; x < 256; ++x) ramp.row(p, y)[x] = static_cast<std::byte>(p == y ? x : 128);
      const std::vector<float> rgb = gather_whole(ramp, {matrix, full, 0}, NetworkColor::rgb);
      cpu::scatter({format, {matrix, full, 0}, NetworkColor::rgb}, rgb.data(), back.mutable_ref());
      EXPECT_EQ(back.packed(), ramp.packed()) << matrix << full;
    }
}

TEST(ScatterTest, GrayLeavesChromaAlone) {
  std::mt19937 random(10);
  TestPicture picture = random_picture(kYuv420P8, 8, 6, random);
  const std::vector<std::byte> before = picture.packed();
  const std::vector<float> white(48, 1.0f);
  cpu::scatter({kYuv420P8, {1, false, 0}, NetworkColor::gray}, white.data(), picture.mutable_ref());
  const std::vector<std::byte> after = picture.packed();
  EXPECT_EQ(std::vector<std::byte>(after.begin(), after.begin() + 48), std::vector<std::byte>(48, std::byte{235}));
  EXPECT_EQ(std::vector<std::byte>(after.begin() + 48, after.end()),
            std::vector<std::byte>(before.begin() + 48, before.end()));
}

TEST(ScatterTest, GrayOnRgbIsThreeEqualPlanes) {
  const VideoFormat format{ColorFamily::rgb, SampleType::integer, 8, 0, 0};
  TestPicture picture(format, 4, 1);
  const float values[] = {0, 0.2f, 0.5f, 1.2f};
  cpu::scatter({format, {0, true, 0}, NetworkColor::gray}, values, picture.mutable_ref());
  for (int p = 0; p < 3; ++p) {
    const int expected[] = {0, 51, 128, 255};  // 127.5 is a tie: to even
    for (int x = 0; x < 4; ++x) EXPECT_EQ(static_cast<int>(picture.row(p, 0)[x]), expected[x]);
  }
}

TEST(ScatterTest, FloatsAreNotClamped) {
  const VideoFormat format{ColorFamily::rgb, SampleType::floating, 32, 0, 0};
  TestPicture picture(format, 1, 1);
  const float values[] = {-0.5f, 1.5f, 7.0f};
  cpu::scatter({format, {0, true, 0}, NetworkColor::rgb}, values, picture.mutable_ref());
  EXPECT_EQ(std::memcmp(picture.packed().data(), values, sizeof values), 0);
}

TEST(ScatterTest, WorkspaceHoldsNarrowChroma) {
  EXPECT_EQ(scatter_workspace_floats({kYuv420P8, {}, NetworkColor::rgb}, 64, 10), 2u * 32 * 10);
  EXPECT_EQ(scatter_workspace_floats({kYuv420P8, {}, NetworkColor::gray}, 64, 10), 0u);
  EXPECT_EQ(scatter_workspace_floats({kGray8, {}, NetworkColor::rgb}, 64, 10), 0u);
}

}  // namespace
}  // namespace reelgrad
