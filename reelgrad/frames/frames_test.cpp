#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/frame_pool.h"
#include "reelgrad/frames/packed_picture.h"
#include "reelgrad/frames/test_frame.h"

namespace reelgrad {
namespace {

constexpr VideoFormat kYuv420P8{ColorFamily::yuv, SampleType::integer, 8, 1, 1};

torch::Tensor whole_by_kernel(const TestPicture& picture, const ColorSpec& color, NetworkColor to) {
  const std::vector<float> values = gather_whole(picture, color, to);
  return torch::tensor(values).view({channels(to), picture.rows(0), picture.columns(0)});
}

TEST(FramesTest, ThreadsSharingAPictureChangeNothing) {
  std::mt19937 random(1);
  for (const VideoFormat& format : test_formats()) {
    const TestPicture picture = random_picture(format, 36, 200, random, 12);
    for (const NetworkColor network : {NetworkColor::rgb, NetworkColor::gray, NetworkColor::yuv444}) {
      const ColorSpec color{6, false, 2};
      const torch::Tensor image = to_tensor(view_of(picture), color, network, torch::kCPU);
      ASSERT_TRUE(torch::equal(image, whole_by_kernel(picture, color, network))) << format.name();
      TestPicture ours(format, 36, 200, 4), plain(format, 36, 200, 4);
      to_picture(image, network, color, mutable_view_of(ours));
      cpu::scatter({format, color, network}, {image.const_data_ptr(), planar_strides(36, 200)}, plain.mutable_ref());
      ASSERT_EQ(ours.packed(), plain.packed()) << format.name();
    }
  }
}

constexpr TensorForm kForms[] = {
    {torch::kFloat32, torch::MemoryFormat::Contiguous},   {torch::kFloat16, torch::MemoryFormat::Contiguous},
    {torch::kBFloat16, torch::MemoryFormat::Contiguous},  {torch::kFloat32, torch::MemoryFormat::ChannelsLast},
    {torch::kFloat16, torch::MemoryFormat::ChannelsLast}, {torch::kBFloat16, torch::MemoryFormat::ChannelsLast}};

// torch rounds to nearest, ties to even, as we do.
TEST(FramesTest, TensorsOfEveryFormHoldTheSameValues) {
  std::mt19937 random(31);
  const TestPicture picture = random_picture(kYuv420P8, 36, 70, random, 12);
  const torch::Tensor singles = to_tensor(view_of(picture), {}, NetworkColor::rgb, torch::kCPU);
  for (const TensorForm& form : kForms) {
    const torch::Tensor image = to_tensor(view_of(picture), {}, NetworkColor::rgb, torch::kCPU, form);
    EXPECT_EQ(image.scalar_type(), form.dtype);
    EXPECT_TRUE(image.unsqueeze(0).is_contiguous(form.layout));
    EXPECT_TRUE(torch::equal(image, singles.to(form.dtype)));

    TestPicture ours(kYuv420P8, 36, 70), expected(kYuv420P8, 36, 70);
    to_picture(image, NetworkColor::rgb, {}, mutable_view_of(ours));
    to_picture(image.to(torch::kFloat32).contiguous(), NetworkColor::rgb, {}, mutable_view_of(expected));
    EXPECT_EQ(ours.packed(), expected.packed());
  }
  EXPECT_THROW(to_tensor(view_of(picture), {}, NetworkColor::rgb, torch::kCPU, {.dtype = torch::kInt32}), Error);
}

TEST(FramesTest, FiltersAndDitherAreThoseOfTheKernels) {
  std::mt19937 random(32);
  const TestPicture picture = random_picture(kYuv420P8, 36, 70, random, 12);
  const std::vector<float> expected = gather_whole(picture, {}, NetworkColor::rgb, ChromaFilter::bilinear);
  const torch::Tensor image =
      to_tensor(view_of(picture), {}, NetworkColor::rgb, torch::kCPU, {.filter = ChromaFilter::bilinear});
  EXPECT_TRUE(torch::equal(image.flatten(), torch::tensor(expected)));
  TestPicture ours(kYuv420P8, 36, 70), plain(kYuv420P8, 36, 70);
  to_picture(image, NetworkColor::rgb, {}, mutable_view_of(ours), {Rounding::ordered, ChromaFilter::bilinear});
  scatter_whole({.filter = ChromaFilter::bilinear, .rounding = Rounding::ordered}, expected, plain);
  EXPECT_EQ(ours.packed(), plain.packed());
}

TEST(FramesTest, ImagesOfAnotherSizeAreRefused) {
  TestPicture picture(kYuv420P8, 8, 8);
  EXPECT_THROW(to_picture(torch::zeros({3, 8, 10}), NetworkColor::rgb, {}, mutable_view_of(picture)), Error);
  EXPECT_THROW(to_picture(torch::zeros({1, 8, 8}), NetworkColor::rgb, {}, mutable_view_of(picture)), Error);
}

TEST(FramesTest, ImagesNeedNotBeContiguousSingles) {
  const torch::Tensor image = torch::rand({8, 12, 3}, torch::kFloat64).permute({2, 0, 1});
  TestPicture a(kYuv420P8, 12, 8), b(kYuv420P8, 12, 8);
  to_picture(image, NetworkColor::rgb, {}, mutable_view_of(a));
  to_picture(image.to(torch::kFloat32).contiguous(), NetworkColor::rgb, {}, mutable_view_of(b));
  EXPECT_EQ(a.packed(), b.packed());
}

// Pictures of the pool, read back as tensors.
void expect_pool_holds(const FramePool& pool, const std::vector<TestPicture>& pictures, torch::Device device) {
  if (const auto stored = pool.stored()) stored->synchronize();
  const VideoFormat& format = pool.format();
  const int width = pictures[0].columns(0), height = pictures[0].rows(0);
  for (int slot = 0; slot < pool.slots(); ++slot) {
    const torch::Tensor out = torch::empty({3, height, width}, torch::device(device));
    const CropJob job{.source = pool.picture(slot), .width = width, .height = height, .out = image_ref(out)};
    gather({.format = format}, {&job, 1}, device);
    EXPECT_TRUE(torch::equal(out.cpu(), whole_by_kernel(pictures[slot], {}, NetworkColor::rgb))) << slot;
  }
}

void expect_pool_works(FramePool::Place place, torch::Device device) {
  std::mt19937 random(2);
  for (const VideoFormat& format : test_formats()) {
    FramePool pool(format, 44, 28, 3, place, device);
    EXPECT_EQ(pool.place(), place);
    std::vector<TestPicture> pictures;
    for (int slot = 0; slot < 3; ++slot) pictures.push_back(random_picture(format, 44, 28, random, 20));
    for (const int slot : {2, 0, 1}) pool.store(slot, view_of(pictures[slot]));
    expect_pool_holds(pool, pictures, device);
    pictures[1] = random_picture(format, 44, 28, random);
    pool.store(1, view_of(pictures[1]));
    expect_pool_holds(pool, pictures, device);
  }
}

TEST(FramePoolTest, HoldsWhatWasStored) {
  expect_pool_works(FramePool::Place::host, torch::kCPU);
}

TEST(FramePoolTest, RefusesAnotherFormatOrSize) {
  FramePool pool(kYuv420P8, 44, 28, 1, FramePool::Place::host, torch::kCPU);
  EXPECT_THROW(pool.store(0, view_of(TestPicture(kYuv420P8, 44, 32))), Error);
  EXPECT_THROW(pool.store(0, view_of(TestPicture({ColorFamily::yuv, SampleType::integer, 10, 1, 1}, 44, 28))), Error);
}

TEST(FramePoolTest, MoreThanMemoryHoldsIsAnErrorInWords) {
  try {
    FramePool(kYuv420P8, 65536, 65536, 40000, FramePool::Place::host, torch::kCPU);  // 234 TiB
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("40000 frames of 6.0 GiB"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("data.pool_frames"), std::string::npos) << error.what();
  }
}

TEST(FramePoolTest, SlotsHoldTheFormatAndLittleMore) {
  EXPECT_EQ(FramePool::bytes_per_slot(kYuv420P8, 1280, 720), 1280u * 720 * 3 / 2);
  EXPECT_EQ(FramePool::bytes_per_slot({ColorFamily::gray, SampleType::floating, 32, 0, 0}, 101, 2), 448u * 2);
}

// Rows of 720, 404 and 202 bytes.
TEST(PackedLayoutTest, StridesAreMultiplesOf64) {
  EXPECT_EQ(PackedLayout({ColorFamily::gray, SampleType::integer, 8, 0, 0}, 720, 1).stride[0], 768);
  EXPECT_EQ(PackedLayout({ColorFamily::rgb, SampleType::floating, 32, 0, 0}, 101, 1).stride[2], 448);
  EXPECT_EQ(PackedLayout({ColorFamily::rgb, SampleType::floating, 16, 0, 0}, 101, 1).stride[2], 256);
}

// A real decoded frame through R'G'B' and back. Luma is exact in float, at most 1 code off in half; chroma is resampled
// up and down again, which with Catmull-Rom (widened on the way down) is no identity at sharp colour edges: at most 10
// codes on this frame, 0.009 on average.
TEST(FramesTest, RealFrameRoundTrip) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "frame";
  const std::string script = REELGRAD_SOURCE_DIR "/reelgrad/frames/testdata/real_frame.py";
  const ProcessResult run = run_process({REELGRAD_TEST_PYTHON, script, path.string()}, std::chrono::minutes(2));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string bytes = read_file(path);
  ASSERT_EQ(bytes.size(), 1280u * 720 * 3 / 2);

  TestPicture frame(kYuv420P8, 1280, 720, 64), back(kYuv420P8, 1280, 720, 64);
  frame.set(reinterpret_cast<const std::byte*>(bytes.data()));
  const ColorSpec color{1, false, 0};
  for (const torch::ScalarType dtype : {torch::kFloat32, torch::kFloat16}) {
    const torch::Tensor rgb = to_tensor(view_of(frame), color, NetworkColor::rgb, torch::kCPU, {.dtype = dtype});
    to_picture(rgb, NetworkColor::rgb, color, mutable_view_of(back));

    const std::vector<std::byte> a = frame.packed(), b = back.packed();
    const std::size_t luma = 1280 * 720;
    int worst_luma = 0, worst = 0;
    double sum = 0, shift = 0;
    for (std::size_t i = 0; i < luma; ++i)
      worst_luma = std::max(worst_luma, std::abs(static_cast<int>(b[i]) - static_cast<int>(a[i])));
    for (std::size_t i = luma; i < a.size(); ++i) {
      const int difference = static_cast<int>(b[i]) - static_cast<int>(a[i]);
      worst = std::max(worst, std::abs(difference));
      sum += std::abs(difference);
      shift += difference;
    }
    const double samples = static_cast<double>(a.size() - luma);
    EXPECT_LE(worst_luma, dtype == torch::kFloat32 ? 0 : 1);
    EXPECT_LE(worst, 10);
    EXPECT_LT(sum / samples, 0.01);
    EXPECT_LT(std::abs(shift) / samples, 0.001);
  }
}

class FramesGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card on this machine";
  }
};

// "The same": the difference is at most 2^-22 of full scale, or one step of the narrower type. Codes may be 1 apart,
// where the value is a tie.
double tolerance(torch::ScalarType dtype) {
  return dtype == torch::kFloat32 ? 0x1p-22 : dtype == torch::kFloat16 ? 0x1p-10 : 0x1p-7;
}

TEST_F(FramesGpuTest, WholePicturesEqualTheReferenceBothWays) {
  std::mt19937 random(12);
  for (const VideoFormat& format : test_formats())
    for (int repeat = 0; repeat < 6; ++repeat) {
      const int width = 4 * (1 + random() % 50), height = 4 * (1 + random() % 50);
      const ColorSpec color{1, repeat % 2 == 0, repeat};
      const auto network = static_cast<NetworkColor>(repeat % 3);
      const TestPicture picture = random_picture(format, width, height, random, 8);
      const TensorForm& form = kForms[random() % std::size(kForms)];
      const torch::Tensor expected = to_tensor(view_of(picture), color, network, torch::kCPU, form);
      const torch::Tensor image = to_tensor(view_of(picture), color, network, torch::kCUDA, form);
      ASSERT_EQ(image.strides(), expected.strides());
      ASSERT_LE((image.cpu() - expected).abs().max().item<float>(), tolerance(form.dtype)) << format.name();

      TestPicture on_card = picture, on_host = picture;
      const PictureForm rounded{static_cast<Rounding>(random() % 2)};
      to_picture(image, network, color, mutable_view_of(on_card), rounded);
      to_picture(image.cpu(), network, color, mutable_view_of(on_host), rounded);
      const torch::Tensor a = to_tensor(view_of(on_card), color, network, torch::kCPU);
      const torch::Tensor b = to_tensor(view_of(on_host), color, network, torch::kCPU);
      ASSERT_TRUE(torch::equal(a, b)) << format.name();
    }
}

TEST_F(FramesGpuTest, EveryPlaceGivesTheSamePictures) {
  for (const FramePool::Place place : {FramePool::Place::device, FramePool::Place::pinned_host})
    expect_pool_works(place, torch::Device(torch::kCUDA, 0));
}

}  // namespace
}  // namespace reelgrad
