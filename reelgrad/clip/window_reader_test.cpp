#include "reelgrad/clip/window_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "reelgrad/clip/clip_test_util.h"

namespace reelgrad {
namespace {

using ::testing::ElementsAre;

// Five frames whose samples are 10 times their number.
class WindowReaderTest : public testing::Test {
 protected:
  Clip clip(const std::string& more = "") const {
    return test::output(folder_.script("numbered.vpy",
                                       "c = core.std.Splice([core.std.BlankClip(width=64, height=48, format=vs.GRAY8, "
                                       "length=1, color=10 * n) for n in range(5)])\n" +
                                           more + "c.set_output()\n"));
  }

 private:
  test::ScriptFolder folder_;
};

std::vector<int> numbers(const std::vector<FrameView>& window) {
  std::vector<int> result;
  for (const FrameView& view : window) result.push_back(std::to_integer<int>(view.planes[0].data[0]) / 10);
  return result;
}

TEST_F(WindowReaderTest, TheFirstAndLastFrameStandForWhatLiesBeyond) {
  WindowReader reader(clip(), {0, 5}, 5);
  EXPECT_THAT(numbers(reader.next()), ElementsAre(0, 0, 0, 1, 2));
  EXPECT_EQ(reader.middle().number(), 0);
  EXPECT_THAT(numbers(reader.next()), ElementsAre(0, 0, 1, 2, 3));
  EXPECT_THAT(numbers(reader.next()), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(numbers(reader.next()), ElementsAre(1, 2, 3, 4, 4));
  EXPECT_THAT(numbers(reader.next()), ElementsAre(2, 3, 4, 4, 4));
  EXPECT_EQ(reader.middle().number(), 4);
}

TEST_F(WindowReaderTest, ARangeIsSurroundedByTheClipsOwnFrames) {
  WindowReader reader(clip(), {1, 3}, 3);
  EXPECT_THAT(numbers(reader.next()), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(reader.next()), ElementsAre(1, 2, 3));
  EXPECT_EQ(test::error_of([&] { reader.next(); }).kind(), ErrorKind::failed);
}

TEST_F(WindowReaderTest, OneFrameOrMoreThanTheClipHas) {
  WindowReader one(clip(), {3, 5}, 1);
  EXPECT_THAT(numbers(one.next()), ElementsAre(3));
  EXPECT_THAT(numbers(one.next()), ElementsAre(4));
  EXPECT_THAT(numbers(WindowReader(clip(), {2, 3}, 9).next()), ElementsAre(0, 0, 0, 1, 2, 3, 4, 4, 4));
}

std::vector<std::int64_t> frames_of(const std::vector<Frame>& window) {
  std::vector<std::int64_t> result;
  for (const Frame& frame : window) result.push_back(frame.number());
  return result;
}

// Frame 3 begins a scene, which one of the two frames says.
std::string cut_by(const std::string& frame, const std::string& key) {
  return fmt::format("c = c[:{0}] + c[{0}].std.SetFrameProps({1}=1) + c[{0}+1:]\n", frame, key);
}

TEST_F(WindowReaderTest, ACutIsAnEnd) {
  for (const std::string& cut : {cut_by("3", "_SceneChangePrev"), cut_by("2", "_SceneChangeNext")}) {
    WindowReader reader(clip(cut), {1, 4}, 3);
    EXPECT_THAT(numbers(reader.next()), ElementsAre(0, 1, 2));
    EXPECT_THAT(numbers(reader.next()), ElementsAre(1, 2, 2));
    EXPECT_THAT(numbers(reader.next()), ElementsAre(3, 3, 4));
    EXPECT_THAT(frames_of(reader.window()), ElementsAre(3, 3, 4));
    WindowReader mirrored(clip(cut), {2, 3}, 5, {.ends = WindowEnds::mirror});
    EXPECT_THAT(numbers(mirrored.next()), ElementsAre(0, 1, 2, 1, 0));
    WindowReader blind(clip(cut), {2, 3}, 5, {.scene_cuts = false});
    EXPECT_THAT(numbers(blind.next()), ElementsAre(0, 1, 2, 3, 4));
  }
}

TEST_F(WindowReaderTest, SegmentsComeOnceEach) {
  WindowReader reader(clip(cut_by("3", "_SceneChangePrev")), {1, 5}, 2, {.segments = true});
  EXPECT_THAT(numbers(reader.next()), ElementsAre(0, 1));
  EXPECT_EQ(reader.restored(), (FrameRange{1, 2}));
  EXPECT_THAT(numbers(reader.next()), ElementsAre(2, 2));
  EXPECT_THAT(numbers(reader.next()), ElementsAre(3, 3));
  EXPECT_EQ(reader.restored(), (FrameRange{3, 4}));
  EXPECT_THAT(numbers(reader.next()), ElementsAre(4, 4));
  EXPECT_EQ(test::error_of([&] { reader.next(); }).kind(), ErrorKind::failed);
}

TEST_F(WindowReaderTest, FramesOutliveTheNextWindow) {
  WindowReader reader(clip(), {0, 5}, 3);
  const std::vector<FrameView> views = reader.next();
  const std::vector<Frame> kept = reader.window();
  for (int i = 0; i < 4; ++i) reader.next();
  EXPECT_THAT(numbers(views), ElementsAre(0, 0, 1));
  EXPECT_THAT(frames_of(kept), ElementsAre(0, 0, 1));
}

TEST_F(WindowReaderTest, AFailingFrameRaisesItsOwnError) {
  WindowReader reader(clip("def broken(n, f):\n"
                           "    if n == 4: raise ValueError('the tape is torn')\n"
                           "    return f\n"
                           "c = core.std.ModifyFrame(c, c, broken)\n"),
                      {2, 5}, 3);
  EXPECT_THAT(numbers(reader.next()), ElementsAre(1, 2, 3));
  const Error error = test::error_of([&] { reader.next(); });
  EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("frame 4"), testing::HasSubstr("the tape is torn")));
}

}  // namespace
}  // namespace reelgrad
