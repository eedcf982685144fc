#include "reelgrad/clip/video_format.h"

#include <gtest/gtest.h>

#include "reelgrad/clip/python_error.h"

namespace reelgrad {
namespace {

TEST(VideoFormat, NamesAreVapourSynths) {
  const auto yuv = [](int bits, int w, int h) {
    return VideoFormat{ColorFamily::yuv, SampleType::integer, bits, w, h}.name();
  };
  EXPECT_EQ(yuv(8, 1, 1), "YUV420P8");
  EXPECT_EQ(yuv(10, 1, 0), "YUV422P10");
  EXPECT_EQ(yuv(16, 0, 0), "YUV444P16");
  EXPECT_EQ(yuv(8, 2, 0), "YUV411P8");
  EXPECT_EQ(yuv(8, 2, 2), "YUV410P8");
  EXPECT_EQ(yuv(8, 0, 1), "YUV440P8");
  EXPECT_EQ((VideoFormat{ColorFamily::yuv, SampleType::floating, 16, 1, 1}.name()), "YUV420PH");
  EXPECT_EQ((VideoFormat{ColorFamily::rgb, SampleType::integer, 8}.name()), "RGB24");
  EXPECT_EQ((VideoFormat{ColorFamily::rgb, SampleType::integer, 16}.name()), "RGB48");
  EXPECT_EQ((VideoFormat{ColorFamily::rgb, SampleType::floating, 32}.name()), "RGBS");
  EXPECT_EQ((VideoFormat{ColorFamily::gray, SampleType::floating, 16}.name()), "GrayH");
  EXPECT_EQ((VideoFormat{ColorFamily::gray, SampleType::integer, 10}.name()), "Gray10");
}

TEST(PythonError, NamesTheInnermostOwnLineAndTheMessage) {
  const std::string text =
      "Python exception: boom\n\nTraceback (most recent call last):\n"
      "  File \"vapoursynth.pyx\", line 3365, in vapoursynth._vpy_evaluate\n"
      "  File \"/x/a b.vpy\", line 9, in <module>\n    helper()\n"
      "  File \"/x/a b.vpy\", line 5, in helper\n    raise ValueError(\"boom\")\nValueError: boom\n";
  EXPECT_EQ(shorten_python_error(text, "/x/a b.vpy"), "/x/a b.vpy:5: ValueError: boom");
}

TEST(PythonError, AnErrorInAModuleNamesBothPlaces) {
  const std::string text =
      "Traceback (most recent call last):\n  File \"s.vpy\", line 2, in <module>\n"
      "  File \"/lib/m.py\", line 7, in f\n    x\nKeyError: 'a'\nwith two lines\n";
  EXPECT_EQ(shorten_python_error(text, "s.vpy"), "s.vpy:2: KeyError: 'a'\nwith two lines (raised at /lib/m.py:7)");
}

TEST(PythonError, OfChainedExceptionsTheLastCounts) {
  const std::string text =
      "Traceback (most recent call last):\n  File \"s.vpy\", line 1, in <module>\nKeyError: 'a'\n\n"
      "During handling of the above exception, another exception occurred:\n\n"
      "Traceback (most recent call last):\n  File \"s.vpy\", line 4, in <module>\nOSError: gone\n";
  EXPECT_EQ(shorten_python_error(text, "s.vpy"), "s.vpy:4: OSError: gone");
}

TEST(PythonError, OtherTextIsOnlyTrimmed) {
  EXPECT_EQ(shorten_python_error("\n Resize error: no path\n", ""), "Resize error: no path");
}

}  // namespace
}  // namespace reelgrad
