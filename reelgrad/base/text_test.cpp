#include "reelgrad/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

using ::testing::HasSubstr;

TEST(Nearest, FindsATypingSlipAndNothingElse) {
  const std::vector<std::string> keys{"lr", "name", "beta1", "beta2", "weight_decay", "clip_norm"};
  EXPECT_EQ(nearest("lrr", keys), "lr");
  EXPECT_EQ(nearest("rl", keys), "lr");  // swapped
  EXPECT_EQ(nearest("wieght_decya", keys), "weight_decay");
  EXPECT_EQ(nearest("beta2", keys), "beta2");
  EXPECT_EQ(nearest("momentum", keys), std::nullopt);
  EXPECT_EQ(nearest("x", std::vector<std::string>{"y"}), std::nullopt);
  EXPECT_EQ(nearest("", keys), std::nullopt);
}

TEST(Nearest, PrefersTheCloserAndThenTheEarlier) {
  EXPECT_EQ(nearest("stepp", std::vector<std::string>{"stop", "step"}), "step");
  EXPECT_EQ(nearest("beta", std::vector<std::string>{"beta1", "beta2"}), "beta1");
}

TEST(PatternDistance, IsZeroForAMatch) {
  EXPECT_EQ(pattern_distance("body.0.bias", "body.0.bias"), 0u);
  EXPECT_EQ(pattern_distance("*.bias", "body.0.bias"), 0u);
  EXPECT_EQ(pattern_distance("body.?.*", "body.0.bias"), 0u);
  EXPECT_EQ(pattern_distance("*", ""), 0u);
  EXPECT_EQ(pattern_distance("**a*", "bab"), 0u);
}

TEST(PatternDistance, CountsTheEditsToAMatch) {
  EXPECT_EQ(pattern_distance("*.bais", "body.0.bias"), 2u);
  EXPECT_EQ(pattern_distance("body.?.bias", "body.10.bias"), 1u);
  EXPECT_EQ(pattern_distance("?", ""), 1u);
  EXPECT_EQ(pattern_distance("", "ab"), 2u);
}

TEST(Text, LiteralsOfTomlAndPython) {
  EXPECT_EQ(string_literal("é x"), R"("é x")");
  EXPECT_EQ(string_literal("C:\\a \"b\"\n\x7F"), R"("C:\\a \"b\"\u000A\u007F")");
}

TEST(Text, FormatsDurations) {
  EXPECT_EQ(format_duration(-1), "0 s");
  EXPECT_EQ(format_duration(8.4), "8 s");
  EXPECT_EQ(format_duration(59.6), "1 min 00 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7'500), "2 h 05 min");
}

TEST(Text, FormatsBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(812), "812 B");
  EXPECT_EQ(format_bytes(3'565'158), "3.4 MiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(std::uintmax_t{6} << 40), "6.0 TiB");
}

TEST(Text, Joins) {
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(Text, Splits) {
  EXPECT_EQ(split("a|b||c", '|'), (std::vector<std::string>{"a", "b", "", "c"}));
  EXPECT_EQ(split("", ','), std::vector<std::string>{""});
}

TEST(FrameRange, Parses) {
  EXPECT_EQ(parse_frame_range("10:20", 100, "--frames"), (FrameRange{10, 20}));
  EXPECT_EQ(parse_frame_range("10:", 100, "--frames"), (FrameRange{10, 100}));
  EXPECT_EQ(parse_frame_range(":20", 100, "--frames"), (FrameRange{0, 20}));
  EXPECT_EQ(parse_frame_range("-10:", 100, "--frames"), (FrameRange{90, 100}));
  EXPECT_EQ(parse_frame_range(":-1", 100, "--frames"), (FrameRange{0, 99}));
  EXPECT_EQ(parse_frame_range("0.8:", 132, "--frames"), (FrameRange{106, 132}));
  EXPECT_EQ(parse_frame_range(":0.8", 132, "--frames"), (FrameRange{0, 106}));  // the rest of the one before
  EXPECT_EQ(parse_frame_range("0.25:-10", 100, "--frames").size(), 65);
}

TEST(FrameRange, RejectsWhatIsNoRange) {
  for (const char* text : {"", ":", "5", "a:b", "1:2:3", "1.5:", "0.0:", "1e1:", "5 :6", "+1:", "0x1:"}) {
    EXPECT_FALSE(is_frame_range(text)) << text;
    EXPECT_THROW(parse_frame_range(text, 100, "--frames"), Error) << text;
  }
  EXPECT_TRUE(is_frame_range("-3:"));
}

TEST(FrameRange, SaysWhatIsOutsideTheClip) {
  for (const char* text : {"50:101", "100:", "20:20", "30:20", "-101:"}) {
    try {
      parse_frame_range(text, 100, "validation.frames");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), HasSubstr("validation.frames: \"" + std::string(text) + "\""));
      EXPECT_THAT(error.what(), HasSubstr("100 frames, 0 to 99"));
    }
  }
}

TEST(Text, WordsAsAShellSplitsThem) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(shell_words("", "--x"), Words{});
  EXPECT_EQ(shell_words("  -preset slow\t-tune\nfilm ", "--x"), (Words{"-preset", "slow", "-tune", "film"}));
  EXPECT_EQ(shell_words(R"(a"b c"d '' 'e"f\' g\ h "i\"j")", "--x"), (Words{"ab cd", "", R"(e"f\)", "g h", "i\"j"}));
  try {
    shell_words("a 'b", "--ffmpeg");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "--ffmpeg a 'b: the quote ' is not closed");
  }
}

}  // namespace
}  // namespace reelgrad
