#include "reelgrad/kernels/picture_summary.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "reelgrad/kernels/test_picture.h"

namespace reelgrad {
namespace {

constexpr VideoFormat kGray10{ColorFamily::gray, SampleType::integer, 10, 0, 0};
constexpr VideoFormat kGrayS{ColorFamily::gray, SampleType::floating, 32, 0, 0};

constexpr std::pair<int, int> kSizes[] = {{8, 8}, {44, 36}, {132, 80}, {260, 152}};

template <class Sample>
void set(TestPicture& picture, int plane, int x, int y, Sample value) {
  std::memcpy(picture.row(plane, y) + x * static_cast<int>(sizeof value), &value, sizeof value);
}

// What picture_summary.h says, sample by sample.
std::uint64_t code_at(TestPicture& picture, int x, int y) {
  const VideoFormat& format = picture.format();
  const int plane = format.family == ColorFamily::rgb ? 1 : 0;
  std::uint32_t bits = 0;
  std::memcpy(&bits, picture.row(plane, y) + x * format.bytes_per_sample(), format.bytes_per_sample());
  if (!format.is_float()) return bits;
  const float value = format.bits == 16 ? single_of_half(static_cast<std::uint16_t>(bits)) : bits_float(bits);
  if (!(value > 0)) return 0;
  return static_cast<std::uint64_t>(std::nearbyint(std::min(value, 1.0f) * 65535.0f));
}

PictureSummary plain_summary(TestPicture& picture) {
  const int width = picture.columns(0), height = picture.rows(0);
  const int bits = picture.format().is_float() ? 16 : picture.format().bits;
  PictureSummary summary;
  for (int j = 0; j < 36; ++j)
    for (int i = 0; i < 64; ++i) {
      const int x0 = i * width / 64, x1 = std::max(x0 + 1, (i + 1) * width / 64);
      const int y0 = j * height / 36, y1 = std::max(y0 + 1, (j + 1) * height / 36);
      std::uint64_t sum = 0;
      for (int y = y0; y < y1; ++y)
        for (int x = x0; x < x1; ++x) sum += code_at(picture, x, y);
      summary.cell[j * 64 + i] =
          static_cast<std::uint16_t>((sum << (16 - bits)) / static_cast<std::uint64_t>((x1 - x0) * (y1 - y0)));
    }
  return summary;
}

TEST(PictureSummaryTest, CellsAreTheMeansOfTheirSamples) {
  std::mt19937 random(1);
  for (const VideoFormat& format : test_formats())
    for (const auto& [width, height] : kSizes) {
      TestPicture picture = random_picture(format, width, height, random, 24);
      EXPECT_EQ(cpu::summarize(format, picture.ref()), plain_summary(picture)) << format.bits << ' ' << width;
    }
}

TEST(PictureSummaryTest, KnownValues) {
  TestPicture white(kGray8, 1280, 720);
  white.set(std::vector<std::byte>(1280 * 720, std::byte{255}).data());
  PictureSummary summary = cpu::summarize(kGray8, white.ref());
  for (const std::uint16_t cell : summary.cell) ASSERT_EQ(cell, 255 * 256);

  // Cells are 20 x 20: one sample of 200 in cell (3, 2) adds 200 * 256 / 400.
  white.set(std::vector<std::byte>(1280 * 720, std::byte{0}).data());
  white.row(0, 2 * 20 + 7)[3 * 20 + 19] = std::byte{200};
  summary = cpu::summarize(kGray8, white.ref());
  EXPECT_EQ(summary.cell[2 * kSummaryColumns + 3], 128);
  EXPECT_EQ(std::count(std::begin(summary.cell), std::end(summary.cell), 0), kSummaryColumns * kSummaryRows - 1);
}

TEST(PictureSummaryTest, TallPicturesDoNotOverflow) {
  const int height = 36 * 600;  // 600 rows of 255 are more than 16 bits hold
  TestPicture white(kGray8, 64, height);
  white.set(std::vector<std::byte>(64 * static_cast<std::size_t>(height), std::byte{255}).data());
  const PictureSummary summary = cpu::summarize(kGray8, white.ref());
  for (const std::uint16_t cell : summary.cell) ASSERT_EQ(cell, 255 * 256);
}

// Each of these fills a cell of its own.
constexpr float kOddFloats[] = {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                -0.25f,
                                -0.0f,
                                1.5f,
                                0.5f / 65535.0f,
                                1.5f / 65535.0f,
                                1e-30f};

TestPicture odd_floats() {
  TestPicture picture(kGrayS, 64, 36);
  for (int y = 0; y < 36; ++y)
    for (int x = 0; x < 64; ++x) set(picture, 0, x, y, kOddFloats[x % std::size(kOddFloats)]);
  return picture;
}

TEST(PictureSummaryTest, FloatsAreClampedAndRounded) {
  const PictureSummary summary = cpu::summarize(kGrayS, odd_floats().ref());
  const std::uint16_t expected[] = {0, 65535, 0, 0, 65535, 0, 2, 0};  // ties to even
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(summary.cell[i], expected[i]) << kOddFloats[i];
}

TEST(PictureSummaryTest, BytesBetweenRowsDoNotMatter) {
  for (const VideoFormat& format : test_formats()) {
    std::mt19937 a(2), b(2);
    const TestPicture tight = random_picture(format, 68, 40, a), padded = random_picture(format, 68, 40, b, 24, 0xff);
    EXPECT_EQ(cpu::summarize(format, tight.ref()), cpu::summarize(format, padded.ref()));
    EXPECT_TRUE(cpu::same_picture(format, tight.ref(), padded.ref()));
  }
}

TEST(SamePictureTest, EverySampleOfEveryPlaneCounts) {
  std::mt19937 random(3);
  for (const VideoFormat& format : test_formats()) {
    const TestPicture picture = random_picture(format, 68, 40, random);
    for (int plane = 0; plane < format.planes(); ++plane)
      for (const bool last : {false, true}) {
        TestPicture other = picture;
        const int y = last ? other.rows(plane) - 1 : 0;
        other.row(plane, y)[last ? other.row_bytes(plane) - 1 : 0] ^= std::byte{1};
        EXPECT_FALSE(cpu::same_picture(format, picture.ref(), other.ref())) << format.bits << ' ' << plane;
      }
  }
}

TEST(SamePictureTest, BitsAreComparedNotValues) {
  TestPicture zero(kGrayS, 16, 4), minus_zero(kGrayS, 16, 4), nan(kGrayS, 16, 4);
  set(minus_zero, 0, 3, 2, -0.0f);
  set(zero, 0, 3, 2, 0.0f);
  set(nan, 0, 3, 2, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(cpu::same_picture(kGrayS, zero.ref(), minus_zero.ref()));
  EXPECT_TRUE(cpu::same_picture(kGrayS, nan.ref(), TestPicture(nan).ref()));

  TestPicture low(kGray10, 16, 4, 0, 0), high(kGray10, 16, 4, 0, 0);
  set(high, 0, 15, 3, std::uint16_t{256});  // differs in the upper byte alone
  EXPECT_FALSE(cpu::same_picture(kGray10, low.ref(), high.ref()));
}

// Memory of the card, and the copy of a host picture in it with the same strides.
class CardMemory {
 public:
  explicit CardMemory(std::size_t bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess); }
  CardMemory(const CardMemory&) = delete;
  CardMemory& operator=(const CardMemory&) = delete;
  ~CardMemory() { cudaFree(data_); }
  std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class CardPicture {
 public:
  // `offset`: of the planes from a good alignment.
  CardPicture(TestPicture& picture, int offset) : memory_(kMost), ref_(picture.ref()) {
    std::byte* to = memory_.get() + offset;
    for (int p = 0; p < picture.format().planes(); ++p) {
      const auto bytes = static_cast<std::size_t>(ref_.stride_bytes[p]) * static_cast<std::size_t>(picture.rows(p));
      EXPECT_EQ(cudaMemcpy(to, ref_.plane[p], bytes, cudaMemcpyHostToDevice), cudaSuccess);
      ref_.plane[p] = to;
      to += (bytes + 255) / 256 * 256;
    }
  }
  PictureRef ref() const { return ref_; }

 private:
  static constexpr std::size_t kMost = 4 << 20;
  CardMemory memory_;
  PictureRef ref_;
};

class PictureSummaryGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int cards = 0;
    if (cudaGetDeviceCount(&cards) != cudaSuccess || cards == 0) GTEST_SKIP() << "no CUDA card";
  }

  template <class T>
  static T read(const CardMemory& memory) {
    T value;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&value, memory.get(), sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }

  static PictureSummary summarize(TestPicture& picture, int offset = 0) {
    const CardMemory out(sizeof(PictureSummary));
    const CardPicture there(picture, offset);
    cuda::summarize(picture.format(), there.ref(), reinterpret_cast<PictureSummary*>(out.get()), nullptr);
    return read<PictureSummary>(out);
  }

  static std::uint32_t compare(TestPicture& a, TestPicture& b, int offset = 0) {
    const CardMemory out(sizeof(std::uint32_t));
    EXPECT_EQ(cudaMemset(out.get(), 0x5a, sizeof(std::uint32_t)), cudaSuccess);
    const CardPicture there_a(a, 0), there_b(b, offset);
    cuda::compare(a.format(), there_a.ref(), there_b.ref(), reinterpret_cast<std::uint32_t*>(out.get()), nullptr);
    return read<std::uint32_t>(out);
  }
};

TEST_F(PictureSummaryGpuTest, GivesTheIntegersOfTheProcessor) {
  std::mt19937 random(4);
  for (const VideoFormat& format : test_formats())
    for (const auto& [width, height] : kSizes)
      for (const int padding : {0, 24}) {
        TestPicture picture = random_picture(format, width, height, random, padding);
        EXPECT_EQ(summarize(picture), cpu::summarize(format, picture.ref())) << format.bits << ' ' << width;
      }
  TestPicture odd = odd_floats();
  EXPECT_EQ(summarize(odd), cpu::summarize(kGrayS, odd.ref()));
  TestPicture large = random_picture(kYuv420P8, 1920, 1080, random);
  EXPECT_EQ(summarize(large), cpu::summarize(kYuv420P8, large.ref()));
}

TEST_F(PictureSummaryGpuTest, ComparesAsTheProcessorDoes) {
  std::mt19937 random(5);
  for (const VideoFormat& format : test_formats())
    for (const int padding : {0, 4, 16})
      for (const int offset : {0, 8}) {
        TestPicture picture = random_picture(format, 68, 40, random, padding), same = picture;
        EXPECT_EQ(compare(picture, same, offset), 0u);
        if (padding > 0) same.row(0, 5)[same.row_bytes(0)] ^= std::byte{1};
        EXPECT_EQ(compare(picture, same, offset), 0u) << "of the bytes between rows";
        for (int plane = 0; plane < format.planes(); ++plane)
          for (const bool last : {false, true}) {
            TestPicture other = picture;
            const int y = last ? other.rows(plane) - 1 : 0;
            other.row(plane, y)[last ? other.row_bytes(plane) - 1 : 0] ^= std::byte{1};
            EXPECT_EQ(compare(picture, other, offset), 1u) << format.bits << ' ' << plane;
          }
      }
}

}  // namespace
}  // namespace reelgrad
