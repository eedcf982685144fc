#include "reelgrad/clip/kept_streams.h"

#include <gmock/gmock.h>

#include "reelgrad/clip/clip_test_util.h"

namespace reelgrad {
namespace {

using Kind = FileStream::Kind;
using Lines = std::vector<std::string>;
using testing::ElementsAre;

// A film of two seconds with all that a film may have; its video begins 0.48 s after its sound.
class Film : public testing::Test {
 protected:
  Film() : folder_("é 🎬") {
    const auto chapters = folder_.write("chapters.txt",
                                        ";FFMETADATA1\ntitle=The film\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=1000\n"
                                        "title=One\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=1000\nEND=2500\ntitle=Two\n");
    const auto subtitles = folder_.write("s.srt", "1\n00:00:00,600 --> 00:00:01,500\nHello\n");
    test::ffmpeg({"-f",
                  "lavfi",
                  "-i",
                  "sine=d=2.5",
                  "-itsoffset",
                  "0.48",
                  "-f",
                  "lavfi",
                  "-i",
                  "testsrc=d=2:s=64x48",
                  "-i",
                  subtitles.string(),
                  "-i",
                  chapters.string(),
                  "-map",
                  "1",
                  "-map",
                  "0",
                  "-map",
                  "2",
                  "-c:a",
                  "flac",
                  "-c:s",
                  "srt",
                  "-metadata:s:v:0",
                  "title=The picture",
                  "-metadata:s:v:0",
                  "language=fin",
                  "-metadata:s:s:0",
                  "language=jpn",
                  "-attach",
                  chapters.string(),
                  "-metadata:s:3",
                  "mimetype=text/plain",
                  film().string()});
  }

  test::fs::path film() const { return folder_ / "film.mkv"; }

  test::ScriptFolder folder_;
};

TEST_F(Film, IsListed) {
  const FileStreams listed = list_streams("ffmpeg", film());
  std::vector<Kind> kinds;
  Lines codecs;
  for (const FileStream& stream : listed.streams) {
    EXPECT_EQ(stream.index, static_cast<int>(kinds.size()));
    kinds.push_back(stream.kind);
    codecs.push_back(stream.codec);
  }
  EXPECT_THAT(kinds, ElementsAre(Kind::video, Kind::audio, Kind::subtitle, Kind::attachment));
  EXPECT_THAT(codecs, ElementsAre("h264", "flac", "subrip", testing::_));
  EXPECT_EQ(listed.streams[0].title, "The picture");
  EXPECT_EQ(listed.streams[0].language, "fin");
  EXPECT_EQ(listed.streams[2].language, "jpn");
  EXPECT_TRUE(listed.chapters);
  EXPECT_NEAR(listed.video_delay_s, 0.48, 0.002);
}

TEST_F(Film, GoesIntoMatroskaWhole) {
  const KeptOptions kept = kept_options({.file = film()}, list_streams("ffmpeg", film()), ".mkv");
  EXPECT_THAT(kept.notes, testing::IsEmpty());
  EXPECT_NEAR(kept.video_delay_s, 0.48, 0.002);
  EXPECT_EQ(std::count(kept.output.begin(), kept.output.end(), "copy"), 3);
}

TEST_F(Film, WhatMp4CannotHoldIsSaid) {
  FileStreams listed = list_streams("ffmpeg", film());
  listed.streams.push_back({.index = 4, .kind = Kind::subtitle, .codec = "hdmv_pgs_subtitle"});
  const KeptOptions kept = kept_options({.file = film()}, listed, ".mp4");
  EXPECT_THAT(kept.notes, ElementsAre("audio track 1: flac does not go into .mp4, encoded to AAC",
                                      "left out, as .mp4 does not hold it: an attachment, a subtitle track "
                                      "(hdmv_pgs_subtitle)"));
  EXPECT_THAT(kept.output, testing::IsSupersetOf({"mov_text", "aac"}));
}

TEST_F(Film, NothingThatIsNoVideo) {
  const auto file = folder_.write("none.mkv", "nothing");
  const Error error = test::error_of([&] { list_streams("ffmpeg", file); });
  EXPECT_NE(std::string(error.what()).find("none.mkv"), std::string::npos);
}

}  // namespace
}  // namespace reelgrad
