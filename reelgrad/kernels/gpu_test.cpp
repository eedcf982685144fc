// cuda/ against cpu/, over random formats, sizes, strides and crops.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/conversion.h"
#include "reelgrad/kernels/gather.h"
#include "reelgrad/kernels/test_picture.h"

namespace reelgrad {
namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) fail(cudaGetErrorString(error));
}

// A copy of host bytes on the card.
class DeviceBytes {
 public:
  DeviceBytes(const void* bytes, std::size_t size) : size_(size) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, size));
    memory_.reset(static_cast<std::byte*>(memory));
    check(cudaMemcpy(memory, bytes, size, cudaMemcpyHostToDevice));
  }

  std::byte* data() const { return memory_.get(); }

  std::vector<std::byte> read() const {  // waits for the card
    std::vector<std::byte> bytes(size_);
    check(cudaMemcpy(bytes.data(), data(), size_, cudaMemcpyDeviceToHost));
    return bytes;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_;
};

// A copy of a test picture on the card, bytes between rows included.
class DevicePicture {
 public:
  explicit DevicePicture(TestPicture& picture) : host_(picture.mutable_ref()) {
    for (int p = 0; p < picture.format().planes(); ++p)
      planes_.emplace_back(host_.plane[p], static_cast<std::size_t>(host_.stride_bytes[p]) * picture.rows(p));
  }

  MutablePictureRef mutable_ref() const {
    MutablePictureRef ref = host_;
    for (std::size_t p = 0; p < planes_.size(); ++p) ref.plane[p] = planes_[p].data();
    return ref;
  }

  PictureRef ref() const {
    PictureRef ref{.width = host_.width, .height = host_.height};
    for (std::size_t p = 0; p < planes_.size(); ++p) {
      ref.plane[p] = planes_[p].data();
      ref.stride_bytes[p] = host_.stride_bytes[p];
    }
    return ref;
  }

  std::vector<std::byte> read(int plane) const { return planes_[plane].read(); }

 private:
  MutablePictureRef host_;
  std::vector<DeviceBytes> planes_;
};

template <class Element>
Element element_at(const std::vector<std::byte>& bytes, std::size_t i) {
  Element element;
  std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
  return element;
}

// Steps between two 16-bit floats of one format.
int ulps(std::uint16_t a, std::uint16_t b) {
  const auto ordered = [](std::uint16_t bits) { return bits & 0x8000 ? 0x8000 - bits : static_cast<int>(bits); };
  return std::abs(ordered(a) - ordered(b));
}

void expect_near(ElementType element, const std::vector<std::byte>& ours, const std::vector<std::byte>& expected) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < ours.size() / element_bytes(element); ++i) {
    if (element == ElementType::f32)
      ASSERT_NEAR(element_at<float>(ours, i), element_at<float>(expected, i), 0x1p-22) << i;
    else
      ASSERT_LE(ulps(element_at<std::uint16_t>(ours, i), element_at<std::uint16_t>(expected, i)), 1) << i;
  }
}

class KernelsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      cudaGetLastError();
      GTEST_SKIP() << "no CUDA card on this machine";
    }
  }

  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  Orientation any_orientation() { return {below(2) == 1, below(2) == 1, below(2) == 1}; }

  std::mt19937 random_{11};
};

void gather_by_table(const GatherSpec& spec, const std::vector<CropJob>& jobs) {
  std::vector<SpecifiedJob> specified;
  for (const CropJob& job : jobs) specified.push_back({spec, job});
  std::vector<std::byte> table(cuda::gather_table_bytes(jobs.size()));
  const unsigned blocks = cuda::write_gather_table(specified, table.data());
  const DeviceBytes on_card(table.data(), table.size());
  cuda::gather_table(on_card.data(), jobs.size(), blocks, nullptr);
  check(cudaDeviceSynchronize());
}

// Crops of many sizes from pictures of two sizes, more than one launch holds; by parameters and by a table.
TEST_F(KernelsGpuTest, GatherEqualsTheReference) {
  for (const VideoFormat& format : test_formats())
    for (int repeat = 0; repeat < 6; ++repeat) {
      TestPicture small = random_picture(format, 4 * (1 + below(20)), 4 * (1 + below(20)), random_, 4 * below(9));
      TestPicture large =
          random_picture(format, 2 * small.columns(0), 2 * small.rows(0), random_, 4 * below(9), below(256));
      const DevicePicture small_copy(small), large_copy(large);
      const GatherSpec spec{.format = format,
                            .color = {9, repeat % 2 == 0, repeat},
                            .to = static_cast<NetworkColor>(repeat % 3),
                            .filter = static_cast<ChromaFilter>(below(2)),
                            .element = kElementTypes[below(3)]};
      const int jobs = 1 + below(2 * static_cast<int>(cuda::kJobsALaunch) + 4);
      std::vector<TestImage> images;
      std::vector<DeviceBytes> outputs;
      std::vector<CropJob> host_jobs, card_jobs;
      for (int k = 0; k < jobs; ++k) {
        const bool from_large = below(2) == 1;
        const PictureRef picture = from_large ? large.ref() : small.ref();
        CropJob job{
            .width = 1 + below(picture.width), .height = 1 + below(picture.height), .orientation = any_orientation()};
        if (job.orientation.transpose) job.width = job.height = std::min(job.width, job.height);
        job.x = below(picture.width - job.width + 1);
        job.y = below(picture.height - job.height + 1);
        TestImage& image =
            images.emplace_back(spec.element, channels(spec.to), job.width, job.height, below(2) == 1, below(4));
        const DeviceBytes& output = outputs.emplace_back(image.bytes().data(), image.bytes().size());
        job.source = from_large ? large_copy.ref() : small_copy.ref();
        job.out = {output.data(), image.ref().strides};
        card_jobs.push_back(job);
        job.source = picture;
        job.out = image.mutable_ref();
        host_jobs.push_back(job);
      }
      cpu::gather(spec, host_jobs);
      if (repeat % 2 == 0) {
        cuda::gather(spec, card_jobs, nullptr);
      } else {
        gather_by_table(spec, card_jobs);
      }
      for (int k = 0; k < jobs; ++k) {
        SCOPED_TRACE(format.name() + ", job " + std::to_string(k));
        expect_near(spec.element, outputs[k].read(), images[k].bytes());
      }
    }
}

// Codes at most 1 apart, and only where the value is a tie; floats as close as gather's.
void expect_near(const ScatterSpec& spec, const std::vector<float>& values, const DevicePicture& ours,
                 TestPicture& expected) {
  const VideoFormat& format = spec.format;
  TestPicture exact({format.family, SampleType::floating, 32, format.subsampling_w, format.subsampling_h},
                    expected.columns(0), expected.rows(0));
  if (!format.is_float()) scatter_whole({.color = spec.color, .from = spec.from, .filter = spec.filter}, values, exact);
  const Conversion conversion = make_conversion(format, spec.color, spec.from);
  const int sample_bytes = format.bytes_per_sample();
  for (int p = 0; p < format.planes(); ++p) {
    const std::vector<std::byte> plane = ours.read(p);
    const std::ptrdiff_t stride = expected.ref().stride_bytes[p];
    for (int y = 0; y < expected.rows(p); ++y) {
      const std::byte *a = plane.data() + y * stride, *b = expected.row(p, y);
      ASSERT_EQ(std::memcmp(a + expected.row_bytes(p), b + expected.row_bytes(p), stride - expected.row_bytes(p)), 0)
          << "bytes between rows, plane " << p << ", row " << y;
      for (int x = 0; x < expected.columns(p); ++x) {
        std::uint32_t left = 0, right = 0;
        std::memcpy(&left, a + x * sample_bytes, sample_bytes);
        std::memcpy(&right, b + x * sample_bytes, sample_bytes);
        if (left == right) continue;
        if (format.bits == 32) {
          ASSERT_NEAR(bits_float(left), bits_float(right), 0x1p-22);
          continue;
        }
        if (format.is_float()) {
          ASSERT_LE(ulps(static_cast<std::uint16_t>(left), static_cast<std::uint16_t>(right)), 1);
          continue;
        }
        ASSERT_EQ(std::max(left, right) - std::min(left, right), 1u) << p << ' ' << x << ' ' << y;
        float value;
        std::memcpy(&value, exact.row(p, y) + 4 * x, sizeof value);
        const CodeRange& range = format.family == ColorFamily::yuv && p > 0 ? conversion.chroma : conversion.luma;
        const float dither = spec.rounding == Rounding::ordered ? ordered_dither(p, x, y) : 0.0f;
        const double code = static_cast<double>(value) * range.to_code + range.offset + dither;
        ASSERT_NEAR(code, std::min(left, right) + 0.5, 2 * range.to_code * 0x1p-22) << "not a tie";
      }
    }
  }
}

TEST_F(KernelsGpuTest, ScatterEqualsTheReference) {
  for (const VideoFormat& format : test_formats())
    for (int repeat = 0; repeat < 12; ++repeat) {
      const int width = 4 * (1 + below(40)), height = 4 * (1 + below(40));
      const ScatterSpec spec{.format = format,
                             .color = {1, repeat % 2 == 0, repeat % 6},
                             .from = static_cast<NetworkColor>(repeat % 3),
                             .filter = static_cast<ChromaFilter>(below(2)),
                             .element = kElementTypes[below(3)],
                             .rounding = static_cast<Rounding>(below(2))};
      TestImage image(spec.element, channels(spec.from), width, height, below(2) == 1, below(4));
      image.set_values(random_values(channels(spec.from) * width * height, random_));
      const DeviceBytes input(image.bytes().data(), image.bytes().size());
      TestPicture expected = random_picture(format, width, height, random_, 4 * below(9), 0x5a);
      const DevicePicture ours(expected);
      cpu::scatter(spec, image.ref(), expected.mutable_ref());
      const ImageRef on_card{input.data(), image.ref().strides};
      const int first = 4 * below(height / 4 + 1);  // in two bands, or at once
      if (first > 0) cuda::scatter_rows(spec, on_card, ours.mutable_ref(), 0, first, nullptr);
      if (first < height) cuda::scatter_rows(spec, on_card, ours.mutable_ref(), first, height, nullptr);
      SCOPED_TRACE(format.name() + ' ' + std::to_string(width) + 'x' + std::to_string(height));
      expect_near(spec, image.values(), ours, expected);
      if (HasFatalFailure()) return;
    }
}

// Rows of NaN between the rows: no byte of theirs reaches the output.
TEST_F(KernelsGpuTest, BytesBetweenRowsDoNotMatter) {
  for (const VideoFormat& format : test_formats()) {
    std::mt19937 a(6), b(6);
    TestPicture tight = random_picture(format, 36, 20, a), padded = random_picture(format, 36, 20, b, 24, 0xff);
    std::vector<std::byte> results[2];
    for (TestPicture* picture : {&tight, &padded}) {
      const DevicePicture copy(*picture);
      TestImage image(ElementType::f32, 3, 36, 20);
      const DeviceBytes output(image.bytes().data(), image.bytes().size());
      const CropJob job{.source = copy.ref(), .width = 36, .height = 20, .out = {output.data(), image.ref().strides}};
      cuda::gather({.format = format}, {&job, 1}, nullptr);
      results[picture == &padded] = output.read();
    }
    EXPECT_EQ(results[0], results[1]) << format.name();
  }
}

}  // namespace
}  // namespace reelgrad
