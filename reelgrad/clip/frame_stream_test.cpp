#include "reelgrad/clip/frame_stream.h"

#include <thread>

#include "reelgrad/clip/clip_test_util.h"

namespace reelgrad {
namespace {

using test::error_of;
using test::output;
using test::ScriptFolder;
using namespace std::chrono_literals;

// Frames whose first sample is their number and that take unlike times; each evaluation leaves a line in "log".
constexpr const char* kNumbered =
    "import time, threading\n"
    "c = core.std.BlankClip(width=64, height=48, format=vs.GRAY8, length=100)\n"
    "lock = threading.Lock()\n"
    "def number(n, f):\n"
    "    time.sleep(0.001 * (n * 7 % 5))\n"
    "    with lock, open('@LOG@', 'a') as out: out.write(f'{n}\\n')\n"
    "    if n == 60: raise RuntimeError('broken')\n"
    "    g = f.copy()\n"
    "    g[0][0, 0] = n\n"
    "    return g\n"
    "c.std.ModifyFrame(c, number).set_output()\n";

class StreamOfFrames : public testing::Test {
 protected:
  StreamOfFrames() {
    std::string text = kNumbered;
    text.replace(text.find("@LOG@"), 5, (folder_ / "log").string());
    clip_ = output(folder_.script("n.vpy", text));
  }
  std::size_t evaluated() const {
    const std::string log = test::read_bytes(folder_ / "log");
    return std::count(log.begin(), log.end(), '\n');
  }
  // Once nothing more is evaluated.
  std::size_t settled() const {
    std::size_t last = evaluated();
    for (int quiet = 0; quiet < 4; ++quiet) {
      std::this_thread::sleep_for(50ms);
      if (const std::size_t now = evaluated(); now != last) {
        last = now;
        quiet = 0;
      }
    }
    return last;
  }
  ScriptFolder folder_;
  Clip clip_;
};

int value(const Frame& frame) {
  return std::to_integer<int>(frame.view().planes[0].data[0]);
}

TEST_F(StreamOfFrames, ComesInOrder) {
  FrameStream stream(clip_, 3, 50, {.in_flight = 8});
  for (int n = 3; n < 53; ++n) {
    const auto frame = stream.next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->number(), n);
    EXPECT_EQ(value(*frame), n);
  }
  EXPECT_FALSE(stream.next().has_value());
  EXPECT_FALSE(stream.next().has_value());
}

TEST_F(StreamOfFrames, ComesInTheGivenOrderWithRepeats) {
  const std::vector<std::int64_t> order{5, 5, 99, 0, 41, 2, 5};
  FrameStream stream(clip_, order);
  for (const std::int64_t n : order) EXPECT_EQ(value(stream.next().value()), n);
  EXPECT_FALSE(stream.next().has_value());
  EXPECT_FALSE(FrameStream(clip_, 0, 0).next().has_value());
}

TEST_F(StreamOfFrames, NeverHoldsMoreThanItsBudget) {
  constexpr std::int64_t kFrame = 64 * 48;
  FrameStream stream(clip_, 0, 50, {.in_flight = 4, .budget_bytes = 6 * kFrame});
  EXPECT_EQ(settled(), 6u);
  for (int n = 0; n < 10; ++n) stream.next();
  EXPECT_EQ(settled(), 16u);
}

TEST_F(StreamOfFrames, AsksForOneWhereTheBudgetIsTooSmall) {
  FrameStream stream(clip_, 0, 50, {.budget_bytes = 1});
  EXPECT_EQ(settled(), 1u);
  EXPECT_EQ(value(stream.next().value()), 0);
  EXPECT_EQ(value(stream.next().value()), 1);
}

TEST_F(StreamOfFrames, AnErrorComesInItsPlaceWithTheNumberAskedFor) {
  FrameStream stream(clip_, {58, 59, 60, 61}, {.in_flight = 4});
  EXPECT_EQ(value(stream.next().value()), 58);
  EXPECT_EQ(value(stream.next().value()), 59);
  const Error error = error_of([&] { stream.next(); });
  EXPECT_TRUE(std::string(error.what()).starts_with("n.vpy, output 0: frame 60: ")) << error.what();
  EXPECT_EQ(value(stream.next().value()), 61);
}

TEST_F(StreamOfFrames, RefusesFramesThatDoNotExist) {
  EXPECT_EQ(error_of([&] { FrameStream(clip_, 95, 10); }).kind(), ErrorKind::usage);
}

TEST_F(StreamOfFrames, CancelEndsAWaitingConsumer) {
  const Clip slow = output(folder_.script("slow.vpy",
                                          "import time\n"
                                          "c = core.std.BlankClip(width=64, height=48, length=100)\n"
                                          "def wait(n, f):\n"
                                          "    time.sleep(0.3)\n"
                                          "    return f\n"
                                          "c.std.ModifyFrame(c, wait).set_output()\n"));
  FrameStream stream(slow, 0, 100);
  std::thread other([&] {
    std::this_thread::sleep_for(50ms);
    stream.cancel();
  });
  EXPECT_FALSE(stream.next().has_value());
  other.join();
  EXPECT_FALSE(stream.next().has_value());
}

TEST_F(StreamOfFrames, ManyLiveAndDieTogether) {
  std::vector<std::thread> consumers;
  for (int t = 0; t < 4; ++t) {
    consumers.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) {
        FrameStream stream(clip_, t, 40, {.in_flight = 3});
        for (int n = t; n < t + 10; ++n) EXPECT_EQ(value(stream.next().value()), n);
      }  // dies with requests in flight
    });
  }
  for (std::thread& consumer : consumers) consumer.join();
}

TEST_F(StreamOfFrames, FramesOutliveTheStream) {
  std::optional<Frame> frame;
  {
    FrameStream stream(std::move(clip_), 42, 1);
    frame = stream.next();
  }
  EXPECT_EQ(value(*frame), 42);
}

}  // namespace
}  // namespace reelgrad
