// Our conversions against VapourSynth's resize.Bicubic and resize.Bilinear with their defaults (zimg), run once by a
// Python script.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/kernels/conversion.h"
#include "reelgrad/kernels/test_picture.h"

namespace reelgrad {
namespace {

struct Case {
  std::string name, direction;
  VideoFormat format;
  int width = 0, height = 0;
  ColorSpec color;
  ChromaFilter filter = ChromaFilter::bicubic;
};

class ZimgTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace();
    const std::string script = REELGRAD_SOURCE_DIR "/reelgrad/kernels/testdata/zimg_reference.py";
    const ProcessResult run =
        run_process({REELGRAD_TEST_PYTHON, script, folder_->path().string()}, std::chrono::minutes(2));
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::vector<Case> cases(const std::string& direction) {
    std::vector<Case> found;
    std::ifstream index(*folder_ / "index.txt");
    for (std::string line; std::getline(index, line);) {
      std::istringstream words(line);
      Case c;
      std::string family, sample, filter;
      words >> c.name >> c.direction >> family >> sample >> c.format.bits >> c.format.subsampling_w >>
          c.format.subsampling_h >> c.width >> c.height >> c.color.matrix >> c.color.full_range >>
          c.color.chroma_location >> filter;
      c.filter = filter == "bilinear" ? ChromaFilter::bilinear : ChromaFilter::bicubic;
      c.format.family = family == "gray" ? ColorFamily::gray : family == "rgb" ? ColorFamily::rgb : ColorFamily::yuv;
      c.format.sample_type = sample == "int" ? SampleType::integer : SampleType::floating;
      if (c.direction == direction) found.push_back(c);
    }
    return found;
  }

  static std::vector<std::byte> read(const Case& c, const std::string& what) {
    std::ifstream file(*folder_ / (c.name + "." + what), std::ios::binary);
    const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
    const auto* bytes = reinterpret_cast<const std::byte*>(chars.data());
    return {bytes, bytes + chars.size()};
  }

  static std::vector<float> read_floats(const Case& c) {
    const auto bytes = read(c, "float");
    std::vector<float> floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }

  static TestPicture read_clip(const Case& c) {
    TestPicture picture(c.format, c.width, c.height, 5 * c.format.bytes_per_sample());
    picture.set(read(c, "clip").data());
    return picture;
  }

  inline static std::optional<test::TemporaryFolder> folder_;
};

std::vector<double> doubles_of(const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

double code_at(const std::vector<std::byte>& bytes, int bits, std::size_t i) {
  if (bits == 8) return static_cast<double>(bytes[i]);
  std::uint16_t code;
  std::memcpy(&code, bytes.data() + 2 * i, sizeof code);
  return code;
}

float float_at(const std::vector<std::byte>& bytes, int bits, std::size_t i) {
  if (bits == 32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, bytes.data() + 2 * i, sizeof half);
  return single_of_half(half);
}

// How far a value of ours before rounding may lie from the formulas in double precision, in code values: 2^-22 of full
// scale, four of single precision's steps just below white.
double exact_tolerance(int bits) {
  return ((1 << bits) - 1) * 0x1p-22;
}

// And from zimg's integer: 0.5 is rounding. At 16 bits the last bits of both sides show (docs/benchmarks.md).
double code_tolerance(int bits) {
  return bits == 16 ? 0.508 : 0.501;
}

constexpr double kFloatTolerance = 1e-6;

TEST_F(ZimgTest, ToRgbAgreesInFloat) {
  const auto all = cases("to");
  ASSERT_GT(all.size(), 100u);
  for (const Case& c : all) {
    const NetworkColor to = c.format.family == ColorFamily::gray ? NetworkColor::gray : NetworkColor::rgb;
    const std::vector<float> ours = gather_whole(read_clip(c), c.color, to, c.filter), zimg = read_floats(c);
    ASSERT_EQ(ours.size(), zimg.size()) << c.name;
    for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], zimg[i], kFloatTolerance) << c.name << ' ' << i;
  }
}

// zimg makes RGB from integer YUV through float, chroma resampling included: its integers are comparable.
TEST_F(ZimgTest, ToRgbAgreesWithItsIntegers) {
  for (const Case& c : cases("to")) {
    if (c.format.is_float()) continue;
    const NetworkColor to = c.format.family == ColorFamily::gray ? NetworkColor::gray : NetworkColor::rgb;
    const std::vector<float> ours = gather_whole(read_clip(c), c.color, to, c.filter);
    const std::vector<std::byte> codes = read(c, "codes");
    ASSERT_EQ(codes.size(), ours.size() * c.format.bytes_per_sample()) << c.name;
    const double largest = (1 << c.format.bits) - 1;
    for (std::size_t i = 0; i < ours.size(); ++i)
      ASSERT_NEAR(std::clamp<double>(ours[i], 0, 1) * largest, code_at(codes, c.format.bits, i),
                  code_tolerance(c.format.bits))
          << c.name << ' ' << i;
  }
}

TEST_F(ZimgTest, ToTheNetworkIsTheFormulas) {
  double largest = 0;
  for (const char* direction : {"to", "ycc"}) {
    for (const Case& c : cases(direction)) {
      if (c.format.is_float()) continue;
      const bool ycc = c.direction == "ycc";
      const NetworkColor to = ycc                                    ? NetworkColor::yuv444
                              : c.format.family == ColorFamily::gray ? NetworkColor::gray
                                                                     : NetworkColor::rgb;
      const std::vector<float> ours = gather_whole(read_clip(c), c.color, to, c.filter);
      const std::vector<double> exact = doubles_of(read(c, "exact"));
      ASSERT_EQ(exact.size(), ours.size()) << c.name;
      for (std::size_t i = 0; i < ours.size(); ++i) {
        const double bias = ycc && i >= ours.size() / 3 ? 0.5 : 0;
        const double value = std::clamp<double>(ours[i], 0, 1), formula = std::clamp(exact[i] + bias, 0.0, 1.0);
        const double difference = std::abs(value - formula) * ((1 << c.format.bits) - 1);
        ASSERT_LE(difference, exact_tolerance(c.format.bits)) << c.name << ' ' << i;
        largest = std::max(largest, difference);
      }
    }
  }
  EXPECT_GT(largest, 0);
}

TEST_F(ZimgTest, ToYuv444AgreesInFloat) {
  const auto all = cases("ycc");
  ASSERT_FALSE(all.empty());
  for (const Case& c : all) {
    const std::vector<float> ours = gather_whole(read_clip(c), c.color, NetworkColor::yuv444, c.filter);
    const std::vector<float> zimg = read_floats(c);
    ASSERT_EQ(ours.size(), zimg.size()) << c.name;
    for (std::size_t i = 0; i < ours.size(); ++i)
      ASSERT_NEAR(ours[i], zimg[i] + (i < ours.size() / 3 ? 0 : 0.5), kFloatTolerance) << c.name << ' ' << i;
  }
}

// Integer 4:2:0 to integer 4:4:4 stays integer inside zimg: 14-bit weights, and rounding to the clip's depth (16 bits
// for 8-bit clips) after each axis. From 9 bits on its integers are thus up to 0.5 * 1.25 + 0.5 codes from the exact
// value; the largest differences seen here are 0.502 (8 bits), 0.99 (10 bits) and 1.03 (16 bits).
TEST_F(ZimgTest, ToYuv444IsNearItsIntegerResampler) {
  for (const Case& c : cases("ycc")) {
    if (c.format.is_float()) continue;
    const std::vector<float> ours = gather_whole(read_clip(c), c.color, NetworkColor::yuv444);
    const std::vector<std::byte> codes = read(c, "codes");
    ASSERT_EQ(codes.size(), ours.size() * c.format.bytes_per_sample()) << c.name;
    const Conversion conversion = make_conversion(c.format, c.color, NetworkColor::yuv444);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const bool luma = i < ours.size() / 3;
      const CodeRange& range = luma ? conversion.luma : conversion.chroma;
      const double code = (ours[i] - (luma ? 0 : 0.5)) * range.to_code + range.offset;
      ASSERT_NEAR(std::clamp<double>(code, 0, range.largest), code_at(codes, c.format.bits, i),
                  c.format.bits == 8 ? 0.51 : 1.13)
          << c.name << ' ' << i;
    }
  }
}

class ZimgBackTest : public ZimgTest {
 protected:
  // Ours of the case's float image, in `format`.
  static std::vector<std::byte> scatter(const Case& c, const VideoFormat& format) {
    std::vector<float> image = read_floats(c);
    const bool ycc = c.direction == "back";
    if (ycc)
      for (std::size_t i = image.size() / 3; i < image.size(); ++i) image[i] += kNetworkChromaBias;
    TestPicture out(format, c.width, c.height, 6 * format.bytes_per_sample());
    scatter_whole({.color = c.color,
                   .from = ycc ? NetworkColor::yuv444 : NetworkColor::rgb,
                   .filter = c.filter,
                   .rounding = c.direction == "dither" ? Rounding::ordered : Rounding::nearest},
                  image, out);
    return out.packed();
  }

  // What is added to each code before rounding, plane after plane.
  static std::vector<float> dither_of(const Case& c) {
    std::vector<float> dither;
    for (int p = 0; p < c.format.planes(); ++p)
      for (int y = 0; y < c.format.plane_height(c.height, p); ++y)
        for (int x = 0; x < c.format.plane_width(c.width, p); ++x)
          dither.push_back(c.direction == "dither" ? ordered_dither(p, x, y) : 0.0f);
    return dither;
  }

  static std::vector<Case> all_cases() {
    std::vector<Case> all = cases("from");
    for (const char* direction : {"back", "dither"})
      for (const Case& c : cases(direction)) all.push_back(c);
    return all;
  }
};

TEST_F(ZimgBackTest, AgreesInFloat) {
  int compared = 0;
  for (const Case& c : all_cases()) {
    if (!c.format.is_float()) continue;
    const std::vector<std::byte> ours = scatter(c, c.format), zimg = read(c, "clip");
    ASSERT_EQ(ours.size(), zimg.size()) << c.name;
    for (std::size_t i = 0; i < ours.size() / c.format.bytes_per_sample(); ++i, ++compared) {
      const double value = float_at(zimg, c.format.bits, i);
      // A half may round the other way where the single-precision values differ in their last bit.
      const double ulp = c.format.bits == 16 ? std::max(std::abs(value), 0x1p-14) * 0x1p-10 : 0;
      ASSERT_NEAR(float_at(ours, c.format.bits, i), value, kFloatTolerance + ulp) << c.name << ' ' << i;
    }
  }
  EXPECT_GT(compared, 100'000);
}

TEST_F(ZimgBackTest, IsTheFormulas) {
  int compared = 0;
  for (const Case& c : all_cases()) {
    if (c.format.is_float()) continue;
    VideoFormat single = c.format;
    single.sample_type = SampleType::floating;
    single.bits = 32;
    const std::vector<std::byte> values = scatter(c, single), ours = scatter(c, c.format);
    const std::vector<double> exact = doubles_of(read(c, "exact"));
    ASSERT_EQ(values.size(), exact.size() * sizeof(float)) << c.name;
    const Conversion conversion = make_conversion(c.format, c.color, NetworkColor::rgb);
    const std::vector<float> dither = dither_of(c);
    const std::size_t luma_samples = static_cast<std::size_t>(c.width) * c.height;
    const double tolerance = exact_tolerance(c.format.bits);
    for (std::size_t i = 0; i < exact.size(); ++i, ++compared) {
      const bool chroma = c.format.family == ColorFamily::yuv && i >= luma_samples;
      const CodeRange& range = chroma ? conversion.chroma : conversion.luma;
      const double code = float_at(values, 32, i) * static_cast<double>(range.to_code) + range.offset;
      ASSERT_NEAR(code, exact[i], tolerance) << c.name << ' ' << i;
      ASSERT_NEAR(code_at(ours, c.format.bits, i), std::clamp<double>(exact[i] + dither[i], 0, range.largest),
                  0.5 + tolerance)
          << c.name << ' ' << i;
    }
  }
  EXPECT_GT(compared, 100'000);
}

TEST_F(ZimgBackTest, AgreesWithItsIntegers) {
  int compared = 0;
  for (const Case& c : all_cases()) {
    if (c.format.is_float()) continue;
    VideoFormat exact = c.format;
    exact.sample_type = SampleType::floating;
    exact.bits = 32;
    const std::vector<std::byte> values = scatter(c, exact), ours = scatter(c, c.format), zimg = read(c, "clip");
    ASSERT_EQ(ours.size(), zimg.size()) << c.name;
    const Conversion conversion = make_conversion(c.format, c.color, NetworkColor::rgb);
    const std::vector<float> dither = dither_of(c);
    const std::size_t luma_samples = static_cast<std::size_t>(c.width) * c.height;
    for (std::size_t i = 0; i < ours.size() / c.format.bytes_per_sample(); ++i, ++compared) {
      const bool chroma = c.format.family == ColorFamily::yuv && i >= luma_samples;
      const CodeRange& range = chroma ? conversion.chroma : conversion.luma;
      const double code = float_at(values, 32, i) * static_cast<double>(range.to_code) + range.offset + dither[i];
      ASSERT_NEAR(std::clamp<double>(code, 0, range.largest), code_at(zimg, c.format.bits, i),
                  code_tolerance(c.format.bits))
          << c.name << ' ' << i;
      ASSERT_NEAR(code_at(ours, c.format.bits, i), code_at(zimg, c.format.bits, i), 1) << c.name << ' ' << i;
    }
  }
  EXPECT_GT(compared, 100'000);
}

}  // namespace
}  // namespace reelgrad
