// Pictures that a network leaves as they are, written in other formats, against what VapourSynth's resize makes of the
// same clip on the way through float RGB; and what is said of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/kernels/conversion.h"
#include "reelgrad/restore/color_plan.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/restore/test_networks.h"

namespace reelgrad {
namespace {

// Output 2 k is an input, 2 k + 1 what it should become.
constexpr const char* kConversions = R"(
import numpy as np
import vapoursynth as vs
core = vs.core

def picture(width, height):
    y, x = np.mgrid[0:height, 0:width]
    waves = [0.5 + 0.3 * np.sin(x / 5 + p) * np.cos(y / (4 + p)) for p in range(3)]
    blank = core.std.BlankClip(format=vs.RGBS, width=width, height=height, length=1)
    def fill(n, f):
        out = f.copy()
        for p in range(3):
            np.asarray(out[p])[:] = waves[p]
        return out
    return core.std.ModifyFrame(blank, blank, fill)

def kind(clip):
    return clip.format.color_family

def convert(clip, name, matrix):
    family = core.get_video_format(getattr(vs, name)).color_family
    args = {}
    if family != vs.RGB and kind(clip) == vs.RGB:
        args["matrix_s"] = matrix
    return clip.resize.Bicubic(format=getattr(vs, name), **args)

k = 0
for width, height, matrix in ((96, 64, "170m"), (96, 720, "709")):
    rgb = picture(width, height)
    for first in ("RGB24", "RGBS", "YUV420P8", "YUV422P10", "YUV444PS", "YUV420P16", "GRAY8", "GRAYS"):
        clip = convert(rgb, first, matrix)
        for last in ("RGB24", "RGB48", "RGBH", "YUV420P8", "YUV444P16", "YUV444PS", "GRAY8", "GRAY16"):
            out = clip
            if kind(clip) == vs.YUV:
                out = clip.resize.Bicubic(format=vs.RGBS)
            own = out
            target = core.get_video_format(getattr(vs, last)).color_family
            own_matrix = matrix
            if kind(clip) == vs.GRAY and target != vs.GRAY:
                own = core.std.ShufflePlanes([core.resize.Bicubic(clip, format=vs.GRAYS, range_s="full")] * 3, [0, 0, 0], vs.RGB)
                own = core.std.SetFrameProps(own, _Matrix=0, _Range=1)
            clip.set_output(k)
            convert(own, last, own_matrix).set_output(k + 1)
            k += 2
)";

double value_at(const FrameView& view, int plane, int x, int y) {
  const std::byte* at =
      view.planes[plane].data + y * view.planes[plane].stride_bytes + x * view.format.bytes_per_sample();
  if (view.format.bits == 8) return std::to_integer<int>(*at);
  if (view.format.bits == 32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t code;
  std::memcpy(&code, at, sizeof code);
  return view.format.is_float() ? single_of_half(code) : code;
}

double largest_gap(const FrameView& a, const FrameView& b) {
  double gap = 0;
  for (int p = 0; p < a.format.planes(); ++p) {
    for (int y = 0; y < a.format.plane_height(a.height, p); ++y) {
      for (int x = 0; x < a.format.plane_width(a.width, p); ++x) {
        gap = std::max(gap, std::abs(value_at(a, p, x, y) - value_at(b, p, x, y)));
      }
    }
  }
  return gap;
}

// One code of 8 to 10 bits; finer ones show single precision.
double tolerance(const VideoFormat& format) {
  if (format.is_float()) return format.bits == 16 ? 1e-3 : 1e-5;
  return format.bits <= 10 ? 1 : 2;
}

TEST(RestorerFormats, EveryFormatBecomesEveryOtherAsVapourSynthDoes) {
  const test::TemporaryFolder folder;
  const Script script = Script::open(folder.write("formats.vpy", kConversions));
  Restorer restorer(std::make_shared<Enlarger>(1, 3), NetworkSpec{}, {});
  int compared = 0;
  for (int k = 0; script.output(k); k += 2) {
    const Frame from = script.output(k)->frame(0), expected = script.output(k + 1)->frame(0);
    const FrameView in = from.view(), want = expected.view();
    SCOPED_TRACE(in.format.name() + " to " + want.format.name() + " at " + std::to_string(in.height));
    OwnedPicture out(want.format, in.width, in.height);
    const ColorProps color = restorer.restore({.window = {{in, 0}}, .clip = "clip"}, {out.mutable_view()});
    EXPECT_LE(largest_gap(out.view(), want), tolerance(want.format));
    if (want.format.family != ColorFamily::gray) {
      EXPECT_EQ(color.matrix, want.color.matrix);
    }
    EXPECT_EQ(color.range, want.color.range);
    const bool subsampled = want.format.subsampling_w > 0;
    EXPECT_EQ(color.chroma_location, subsampled ? 0 : -1);
    ++compared;
  }
  EXPECT_EQ(compared, 2 * 8 * 8);
}

TEST(RestorerFormats, SidesThatAFormatCannotHaveAreRefusedBeforeAnyFrame) {
  Restorer restorer(std::make_shared<Enlarger>(1, 3), NetworkSpec{}, {});
  const VideoFormat rgb, quartered{ColorFamily::yuv, SampleType::integer, 8, 1, 1};
  EXPECT_NO_THROW(restorer.prepare({rgb, 31, 20, rgb}));
  try {
    restorer.prepare({rgb, 31, 20, quartered});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("31x20"), std::string::npos) << error.what();
  }
}

TEST(ColorPlan, WhatIsWrittenIsDecided) {
  const VideoFormat rgb, yuv420{ColorFamily::yuv, SampleType::integer, 8, 1, 1}, gray{ColorFamily::gray};
  const auto plan = [&](NetworkColor network, const VideoFormat& in, ColorSpec color, const VideoFormat& out) {
    return plan_colors(network, 1, in, color, {}, out, 480);
  };
  const ColorSpec film{9, false, 2}, screen{0, true, 0};
  // The same family keeps what it is.
  EXPECT_EQ(plan(NetworkColor::rgb, yuv420, film, yuv420).written, (ColorProps{9, 0, 2, -1, -1}));
  EXPECT_EQ(plan(NetworkColor::rgb, yuv420, film, rgb).written, (ColorProps{0, 1, -1, -1, -1}));
  EXPECT_EQ(plan(NetworkColor::rgb, rgb, screen, yuv420).written, (ColorProps{6, 0, 0, -1, -1}));
  // A gray network leaves chroma alone where it can, else it is enlarged.
  EXPECT_TRUE(plan(NetworkColor::gray, yuv420, film, yuv420).copies_chroma);
  EXPECT_FALSE(plan(NetworkColor::gray, yuv420, film, yuv420).enlarges_chroma);
  EXPECT_TRUE(plan(NetworkColor::gray, yuv420, film, rgb).enlarges_chroma);
  EXPECT_TRUE(plan(NetworkColor::gray, gray, film, yuv420).enlarges_chroma);
  EXPECT_FALSE(plan(NetworkColor::gray, gray, film, rgb).enlarges_chroma);
  EXPECT_EQ(plan(NetworkColor::gray, yuv420, film, gray).picture, NetworkColor::gray);
}

}  // namespace
}  // namespace reelgrad
