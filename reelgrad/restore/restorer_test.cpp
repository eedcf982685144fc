#include "reelgrad/restore/restorer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "reelgrad/base/error.h"
#include "reelgrad/restore/test_networks.h"

namespace reelgrad {
namespace {

Restorer make(std::shared_ptr<Network> network, int tile = 0, int overlap = RestoreOptions::kExact,
              const std::string& precision = "fp32", NetworkColor color = NetworkColor::rgb) {
  NetworkSpec spec;
  spec.color = color;
  RestoreOptions options;
  options.precision = precision;
  options.tile_px = tile;
  options.overlap_px = overlap;
  return Restorer(std::move(network), spec, options);
}

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.cpu() - b.cpu()).abs().max().item<double>();
}

torch::Tensor noise(at::IntArrayRef shape) {
  torch::manual_seed(11);
  return torch::rand(shape);
}

TEST(Restorer, TiledEqualsWholeWhenTheOverlapIsTheReceptiveRadius) {
  const torch::Tensor picture = noise({3, 25, 18});
  const torch::Tensor whole = make(std::make_shared<ThreeConvs>()).run(picture);
  for (const int tile : {1, 5, 8, 17, 24, 64}) {  // 17 and 24 leave last tiles of 1 px
    const torch::Tensor tiled = make(std::make_shared<ThreeConvs>(), tile).run(picture);
    EXPECT_LE(largest_difference(tiled, whole), 1e-4) << "tile " << tile;
  }
  EXPECT_LE(largest_difference(make(std::make_shared<ThreeConvs>(), 8, 3).run(picture), whole), 1e-4);
  EXPECT_GT(largest_difference(make(std::make_shared<ThreeConvs>(), 8, 2).run(picture), whole), 1e-4);
}

TEST(Restorer, PadsToTheMultipleAndTilesKeepItsGrid) {
  const torch::Tensor picture = noise({3, 45, 30});
  const torch::Tensor whole = make(std::make_shared<Enlarger>(2, 3, 4)).run(picture);
  EXPECT_EQ(whole.sizes(), (std::vector<std::int64_t>{3, 90, 60}));
  EXPECT_NEAR(whole[0][0][0].item<double>(), picture[0].narrow(0, 0, 4).narrow(1, 0, 4).mean().item<double>(), 1e-6);
  // The last cell is completed by reflection: row 44 is followed by rows 43, 42, 41.
  EXPECT_NEAR(whole[1][89][0].item<double>(), picture[1].narrow(0, 41, 4).narrow(1, 0, 4).mean().item<double>(), 1e-6);
  for (const int tile : {1, 6, 8, 44}) {
    EXPECT_EQ(largest_difference(make(std::make_shared<Enlarger>(2, 3, 4), tile, 1).run(picture), whole), 0);
  }
}

TEST(Restorer, PicturesSmallerThanTheirPadding) {
  for (const auto& [height, width] : {std::pair{1, 1}, std::pair{3, 2}, std::pair{1, 9}}) {
    const torch::Tensor out = make(std::make_shared<Enlarger>(1, 3, 8)).run(torch::full({3, height, width}, 0.25F));
    EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{3, height, width}));
    EXPECT_NEAR(out.max().item<double>(), 0.25, 1e-6);
    EXPECT_NEAR(out.min().item<double>(), 0.25, 1e-6);
  }
}

TEST(Restorer, WindowsAreTiledToo) {
  const torch::Tensor frames = noise({5, 3, 21, 18});
  const torch::Tensor expected = frames[2].repeat_interleave(2, 1).repeat_interleave(2, 2);
  EXPECT_EQ(largest_difference(make(std::make_shared<Enlarger>(2, 3, 1, 5)).run(frames), expected), 0);
  EXPECT_EQ(largest_difference(make(std::make_shared<Enlarger>(2, 3, 1, 5), 8).run(frames), expected), 0);
}

TEST(Restorer, TakesSmallerTilesWhenMemoryRunsOut) {
  const torch::Tensor picture = noise({3, 200, 150});
  const torch::Tensor whole = make(std::make_shared<ThreeConvs>()).run(picture);
  auto network = std::make_shared<ThreeConvs>();
  network->memory_px = 110 * 110;
  Restorer restorer = make(network);
  EXPECT_EQ(restorer.describe(), "whole frames, fp32, cpu");
  EXPECT_LE(largest_difference(restorer.run(picture), whole), 1e-4);
  EXPECT_EQ(restorer.describe(), "tiles of 100 px (overlap 3), fp32, cpu") << "in one stream, whatever the cores";
  EXPECT_LE(largest_difference(restorer.run(picture), whole), 1e-4);
}

TEST(Restorer, SaysWhenNotEvenSmallTilesFit) {
  auto network = std::make_shared<ThreeConvs>();
  network->memory_px = 10;
  try {
    make(network).run(noise({3, 200, 150}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("150x200"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("32 px"), std::string::npos) << error.what();
  }
}

TEST(Restorer, Precision) {
  const torch::Tensor picture = noise({3, 40, 40});
  const torch::Tensor exact = make(std::make_shared<ThreeConvs>()).run(picture);
  const torch::Tensor bf16 = make(std::make_shared<ThreeConvs>(), 0, RestoreOptions::kExact, "bf16").run(picture);
  EXPECT_EQ(bf16.scalar_type(), torch::kFloat);
  EXPECT_LT(largest_difference(bf16, exact), 0.02);
  EXPECT_GT(largest_difference(bf16, exact), 0);
  for (const char* wrong : {"fp16", "half"}) {
    try {
      make(std::make_shared<ThreeConvs>(), 0, RestoreOptions::kExact, wrong);
      FAIL() << "no error for " << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("allowed"), std::string::npos) << error.what();
    }
  }
}

TEST(Restorer, ItsOutputMayBeChangedInPlace) {
  torch::Tensor out = make(std::make_shared<ThreeConvs>()).run(noise({3, 16, 16}));
  EXPECT_NO_THROW(out.clamp_(0, 1));
  EXPECT_FALSE(out.is_inference());
}

// --- Whole frames ---

VideoFormat format(ColorFamily family, int bits, int subsampling = 0) {
  VideoFormat result;
  result.family = family;
  result.bits = bits;
  result.subsampling_w = result.subsampling_h = subsampling;
  return result;
}

ColorProps tagged(int matrix, int range) {
  ColorProps props;
  props.matrix = matrix;
  props.range = range;
  props.chroma_location = 0;
  return props;
}

// Legal limited-range values: smooth, or noise.
OwnedPicture painted(VideoFormat format, int width, int height, ColorProps props, bool smooth) {
  OwnedPicture picture(format, width, height, props);
  const MutableFrameView view = picture.mutable_view();
  std::srand(5);
  for (int p = 0; p < format.planes(); ++p) {
    for (int y = 0; y < format.plane_height(height, p); ++y) {
      for (int x = 0; x < format.plane_width(width, p); ++x) {
        const int value = smooth ? 60 + 40 * p + x + y : 90 + std::rand() % 70;
        view.planes[p].data[y * view.planes[p].stride_bytes + x] = static_cast<std::byte>(value);
      }
    }
  }
  return picture;
}

struct PlaneDifference {
  int largest = 0;
  double mean = 0;  // signed
};

PlaneDifference compare(const FrameView& a, const FrameView& b, int plane) {
  PlaneDifference result;
  const int rows = a.format.plane_height(a.height, plane), columns = a.format.plane_width(a.width, plane);
  for (int y = 0; y < rows; ++y) {
    for (int x = 0; x < columns; ++x) {
      const int difference = std::to_integer<int>(a.planes[plane].data[y * a.planes[plane].stride_bytes + x]) -
                             std::to_integer<int>(b.planes[plane].data[y * b.planes[plane].stride_bytes + x]);
      result.largest = std::max(result.largest, std::abs(difference));
      result.mean += difference;
    }
  }
  result.mean /= rows * columns;
  return result;
}

OwnedPicture restore(Restorer restorer, const OwnedPicture& input, int scale) {
  const FrameView view = input.view();
  OwnedPicture out(view.format, view.width * scale, view.height * scale, view.color);
  restorer.restore({&view, 1}, "clip", 0, out.mutable_view());
  return out;
}

TEST(RestorerFrames, IdentityKeepsColours) {
  for (const int subsampling : {0, 1}) {
    const OwnedPicture input =
        painted(format(ColorFamily::yuv, 8, subsampling), 40, 24, tagged(6, 0), /*smooth=*/subsampling == 1);
    const OwnedPicture out = restore(make(std::make_shared<Enlarger>(1, 3)), input, 1);
    for (int plane = 0; plane < 3; ++plane) {
      const PlaneDifference difference = compare(input.view(), out.view(), plane);
      EXPECT_LE(difference.largest, 1) << "plane " << plane << ", subsampling " << subsampling;
      EXPECT_LT(std::abs(difference.mean), 0.05) << "plane " << plane << ", subsampling " << subsampling;
    }
  }
}

TEST(RestorerFrames, GrayNetworkLeavesChromaAlone) {
  const OwnedPicture input = painted(format(ColorFamily::yuv, 8, 1), 40, 24, tagged(1, 0), /*smooth=*/false);
  const OwnedPicture out =
      restore(make(std::make_shared<Enlarger>(1, 1), 0, RestoreOptions::kExact, "fp32", NetworkColor::gray), input, 1);
  for (int plane = 0; plane < 3; ++plane) EXPECT_EQ(compare(input.view(), out.view(), plane).largest, 0) << plane;
}

TEST(RestorerFrames, GrayNetworkEnlargesChromaByBicubic) {
  for (const VideoFormat& clip_format : {format(ColorFamily::yuv, 8, 1), format(ColorFamily::rgb, 8)}) {
    const bool rgb = clip_format.family == ColorFamily::rgb;
    const OwnedPicture input = painted(clip_format, 20, 12, rgb ? tagged(0, 1) : tagged(1, 0), /*smooth=*/true);
    const OwnedPicture out = restore(
        make(std::make_shared<Enlarger>(2, 1), 0, RestoreOptions::kExact, "fp32", NetworkColor::gray), input, 2);
    const FrameView small = input.view(), large = out.view();
    for (int plane = 0; plane < 3; ++plane) {
      const int rows = small.format.plane_height(small.height, plane);
      const int columns = small.format.plane_width(small.width, plane);
      for (int y = 2; y < rows - 2; ++y) {  // the picture is a ramp: an enlarged pixel lies within 1.5 of its source
        for (int x = 2; x < columns - 2; ++x) {
          const int expected = std::to_integer<int>(small.planes[plane].data[y * small.planes[plane].stride_bytes + x]);
          const int value =
              std::to_integer<int>(large.planes[plane].data[2 * y * large.planes[plane].stride_bytes + 2 * x]);
          ASSERT_NEAR(value, expected, 2) << "plane " << plane << " at " << x << "," << y << ", rgb " << rgb;
        }
      }
    }
  }
}

TEST(RestorerFrames, Yuv444NetworkAndGrayClip) {
  const OwnedPicture yuv = painted(format(ColorFamily::yuv, 8), 30, 20, tagged(9, 0), /*smooth=*/false);
  const OwnedPicture out =
      restore(make(std::make_shared<Enlarger>(1, 3), 0, RestoreOptions::kExact, "fp32", NetworkColor::yuv444), yuv, 1);
  for (int plane = 0; plane < 3; ++plane) EXPECT_EQ(compare(yuv.view(), out.view(), plane).largest, 0) << plane;

  const OwnedPicture gray = painted(format(ColorFamily::gray, 8), 30, 20, tagged(1, 0), /*smooth=*/false);
  EXPECT_LE(compare(gray.view(), restore(make(std::make_shared<Enlarger>(1, 3)), gray, 1).view(), 0).largest, 1);
}

// --- On a card ---
// Measured on an H200, in code values of 8 bits: fp16 against the CPU 0.19, fp32 (TF32) 0.008; tiled against whole 0.12
// and 0.008, for tiles of another size are convolved by another kernel.

Restorer on_card(std::shared_ptr<Network> network, const std::string& precision, int tile = 0) {
  RestoreOptions options;
  options.device = torch::Device(torch::kCUDA, 0);
  options.precision = precision;
  options.tile_px = tile;
  return Restorer(std::move(network), NetworkSpec{}, options);
}

std::shared_ptr<Network> seeded_compact() {
  torch::manual_seed(3);
  NetworkSpec spec;
  spec.options = {{"features", "24"}, {"convs", "6"}};
  return make_network(spec);
}

TEST(RestorerGpuTest, HalfPrecisionIsWithinHalfACodeValueOfTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  const torch::Tensor picture = noise({3, 120, 200});
  const torch::Tensor exact = make(seeded_compact()).run(picture);
  const double half = largest_difference(on_card(seeded_compact(), "auto").run(picture), exact);
  const double single = largest_difference(on_card(seeded_compact(), "fp32").run(picture), exact);
  RecordProperty("fp16_code_values", std::to_string(half * 255));
  RecordProperty("fp32_code_values", std::to_string(single * 255));  // TF32 convolutions
  EXPECT_LT(half, 0.5 / 255);
  EXPECT_LT(single, 0.5 / 255);
}

TEST(RestorerGpuTest, TiledEqualsWhole) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  const torch::Tensor picture = noise({3, 150, 170});
  for (const char* precision : {"fp32", "fp16"}) {
    const torch::Tensor whole = on_card(seeded_compact(), precision).run(picture);
    const torch::Tensor tiled = on_card(seeded_compact(), precision, 64).run(picture);
    const double difference = largest_difference(whole, tiled);
    RecordProperty(std::string(precision) + "_code_values", std::to_string(difference * 255));
    EXPECT_LT(difference, 0.5 / 255) << precision;
  }
}

}  // namespace
}  // namespace reelgrad
