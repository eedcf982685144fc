#include "reelgrad/frames/color_props.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/frames/convert.h"

namespace reelgrad {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr VideoFormat kYuv{ColorFamily::yuv, SampleType::integer, 8, 1, 1};
constexpr VideoFormat kRgb{ColorFamily::rgb, SampleType::integer, 8, 0, 0};
constexpr VideoFormat kGray{ColorFamily::gray, SampleType::integer, 8, 0, 0};

class ColorPropsTest : public testing::Test {
 protected:
  void SetUp() override {
    log::set_sink([this](log::Level level, std::string_view message) {
      if (level == log::Level::warning) warnings_.emplace_back(message);
    });
  }
  void TearDown() override { log::set_sink(nullptr); }

  // A clip name of the test's own: warnings are given once a clip.
  static std::string clip_name() {
    return std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".vpy, output 1";
  }

  static ColorSpec resolve(const VideoFormat& format, const ColorProps& props, int height,
                           const ColorOverrides& overrides = {}) {
    return resolve_color(format, props, height, overrides, clip_name(), 37);
  }

  static std::string error_of(const VideoFormat& format, const ColorProps& props,
                              const ColorOverrides& overrides = {}) {
    try {
      resolve(format, props, 480, overrides);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return e.what();
    }
    return "no error";
  }

  std::vector<std::string> warnings_;
};

TEST_F(ColorPropsTest, PropertiesAreTaken) {
  EXPECT_EQ(resolve(kYuv, {.matrix = 9, .range = 1, .chroma_location = 2}, 480), (ColorSpec{9, true, 2}));
  EXPECT_EQ(resolve(kYuv, {.matrix = 5, .range = 0, .chroma_location = 5}, 1080), (ColorSpec{5, false, 5}));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ColorPropsTest, MissingOnesAreAssumedAsVapourSynthDoes) {
  EXPECT_EQ(resolve(kRgb, {}, 480), (ColorSpec{0, true, 0}));
  EXPECT_EQ(resolve(kGray, {}, 480), (ColorSpec{6, false, 0}));
  EXPECT_EQ(resolve(kGray, {.matrix = 0}, 720), (ColorSpec{1, false, 0}));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(resolve(kYuv, {}, 719), (ColorSpec{6, false, 0}));
}

TEST_F(ColorPropsTest, AnUnspecifiedMatrixIsGuessedWithOneWarning) {
  EXPECT_EQ(resolve(kYuv, {.matrix = 2}, 720).matrix, 1);
  EXPECT_EQ(resolve(kYuv, {.matrix = 2}, 720).matrix, 1);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], AllOf(HasSubstr("`_Matrix` = 2"), HasSubstr("frame 37"), HasSubstr(clip_name()),
                                  HasSubstr("data.matrix_in"), HasSubstr("BT.709")));
}

TEST_F(ColorPropsTest, OverridesWinOverProperties) {
  const ColorProps props{.matrix = 6, .range = 0, .chroma_location = 0};
  const ColorOverrides overrides{"709", "full", "top_left"};
  EXPECT_EQ(resolve(kYuv, props, 480, overrides), (ColorSpec{1, true, 2}));
  EXPECT_EQ(resolve(kYuv, {.matrix = 2}, 480, {.matrix_in = "2020ncl"}).matrix, 9);
  EXPECT_EQ(resolve(kYuv, {.matrix = 8}, 480, {.matrix_in = "7"}).matrix, 7);
  EXPECT_EQ(resolve(kRgb, {}, 480, {.range_in = "limited"}).full_range, false);
  EXPECT_EQ(resolve(kRgb, {}, 480, {.matrix_in = "709"}).matrix, 0);
  EXPECT_THAT(warnings_, IsEmpty());
}

// The same picture tagged 6 with an override of 709, and rightly tagged 1, are the same tensor.
TEST_F(ColorPropsTest, AnOverriddenClipEqualsTheRightlyTaggedOne) {
  OwnedPicture picture(kYuv, 8, 8);
  for (int p = 0; p < 3; ++p) {
    const MutablePlaneView plane = picture.mutable_view().planes[p];
    for (int y = 0; y < 8 >> (p > 0); ++y)
      for (int x = 0; x < 8 >> (p > 0); ++x)
        plane.data[y * plane.stride_bytes + x] = static_cast<std::byte>(40 * p + 9 * x + 5 * y + 60);
  }
  const auto tensor = [&](const ColorProps& props, const ColorOverrides& overrides) {
    return to_tensor(picture.view(), resolve(kYuv, props, 8, overrides), NetworkColor::rgb, torch::kCPU);
  };
  const torch::Tensor overridden = tensor({.matrix = 6}, {.matrix_in = "709"});
  EXPECT_TRUE(torch::equal(overridden, tensor({.matrix = 1}, {})));
  EXPECT_FALSE(torch::equal(overridden, tensor({.matrix = 6}, {})));
}

TEST_F(ColorPropsTest, ErrorsNameThePropertyAndTheKey) {
  EXPECT_THAT(error_of(kYuv, {.matrix = 8}),
              AllOf(HasSubstr("`_Matrix` = 8"), HasSubstr("frame 37"), HasSubstr("YUV420P8"),
                    HasSubstr("data.matrix_in"), HasSubstr(clip_name())));
  EXPECT_THAT(error_of(kYuv, {.matrix = 1}, {.matrix_in = "rgb"}), HasSubstr("data.matrix_in = \"rgb\""));
  EXPECT_THAT(error_of(kYuv, {.matrix = 1}, {.matrix_in = "7o9"}), AllOf(HasSubstr("\"7o9\""), HasSubstr("2020ncl")));
  EXPECT_THAT(error_of(kYuv, {.matrix = 1}, {.range_in = "tv"}),
              AllOf(HasSubstr("data.range_in"), HasSubstr("limited, full")));
  EXPECT_THAT(error_of(kYuv, {.matrix = 1}, {.chromaloc_in = "middle"}), HasSubstr("data.chromaloc_in"));
}

TEST_F(ColorPropsTest, NetworkColorsHaveNames) {
  for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray, NetworkColor::yuv444})
    EXPECT_EQ(parse_network_color(to_string(color)), color);
  EXPECT_THROW(parse_network_color("bgr"), Error);
}

}  // namespace
}  // namespace reelgrad
