#include "reelgrad/clip/video_writer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/clip/clip_test_util.h"
#include "reelgrad/clip/frame_stream.h"

namespace reelgrad {
namespace {

using test::error_of;
using test::ffprobe;
using test::output;
using test::ScriptFolder;
using Lines = std::vector<std::string>;

class WrittenVideo : public testing::Test {
 protected:
  WrittenVideo() : folder_("é あ 🎬") {}

  // A moving picture in the format, with these properties and durations.
  Clip clip(const std::string& format, int width, int height, const std::string& more = "") {
    static int count = 0;
    return output(folder_.script("c" + std::to_string(count++) + ".vpy",
                                 "c = core.std.BlankClip(width=" + std::to_string(width) +
                                     ", height=" + std::to_string(height) + ", format=vs." + format +
                                     ", length=12, fpsnum=24000, fpsden=1001)\n"
                                     "c = core.std.Splice([c.std.Trim(first=i, length=1).std.Expr(f'x {i} +') for i in "
                                     "range(12)])\n" +
                                     more + "c.set_output()\n"));
  }

  VideoWriterOptions options(const Clip& clip, const std::string& name) {
    const Frame frame = clip.frame(0);
    return {.output = folder_ / name,
            .width = clip.info().width,
            .height = clip.info().height,
            .fps = clip.info().fps,
            .last_duration = clip.frame(clip.info().frames - 1).duration(),
            .source_format = clip.info().format,
            .color = frame.view().color,
            .sample_aspect = frame.sample_aspect()};
  }

  std::string write(const Clip& clip, const VideoWriterOptions& options) {
    VideoWriter writer(options);
    FrameStream frames(clip, 0, clip.info().frames);
    while (const auto frame = frames.next()) writer.write(frame->view(), frame->duration());
    EXPECT_FALSE(test::fs::exists(options.output));
    writer.finish();
    return writer.notes().at(0);
  }

  ScriptFolder folder_;
};

TEST_F(WrittenVideo, KeepsSizeFormatRateAndEveryFrame) {
  const Clip source = clip("YUV420P8", 64, 48);
  const auto file = folder_ / "a.mp4";
  EXPECT_EQ(write(source, options(source, "a.mp4")), "writing yuv420p as libx264, crf 16");
  EXPECT_EQ(ffprobe(file, "stream=codec_name,width,height,pix_fmt,r_frame_rate,nb_frames"),
            (Lines{"h264", "64", "48", "yuv420p", "24000/1001", "12"}));
  EXPECT_EQ(std::distance(test::fs::directory_iterator(folder_.path()), {}), 2);  // the script and the video
}

TEST_F(WrittenVideo, ColourTagsAreKept) {
  const Clip source = clip("YUV420P8", 64, 48,
                           "c = c.std.SetFrameProps(_Matrix=6, _Transfer=16, _Primaries=9, _Range=1, "
                           "_ChromaLocation=2, _SARNum=8, _SARDen=9)\n");
  const Lines expected{"8:9", "pc", "smpte170m", "smpte2084", "bt2020", "topleft"};
  for (const char* name : {"t.mkv", "t.mp4", "t.mov"}) {
    write(source, options(source, name));
    EXPECT_EQ(ffprobe(folder_ / name,
                      "stream=sample_aspect_ratio,color_range,color_space,color_transfer,color_primaries,"
                      "chroma_location"),
              expected)
        << name;
    // The bitstream alone says the same.
    test::ffmpeg({"-i", (folder_ / name).string(), "-c", "copy", (folder_ / "t.h264").string()});
    EXPECT_EQ(ffprobe(folder_ / "t.h264", "stream=color_range,color_space,color_transfer,color_primaries"),
              (Lines{"pc", "smpte170m", "smpte2084", "bt2020"}));
  }
}

TEST_F(WrittenVideo, PixelsAreWhatWasGiven) {
  struct Case {
    const char *format, *extension, *pixel_format;
    int width, height;
  };
  const Case cases[] = {{"YUV420P8", ".mkv", "yuv420p", 66, 50},
                        {"YUV422P8", ".mp4", "yuv422p", 66, 49},
                        {"YUV444P8", ".mkv", "yuv444p", 65, 49},
                        {"YUV420P10", ".mp4", "yuv420p10le", 66, 50},
                        {"YUV422P10", ".mkv", "yuv422p10le", 66, 49},
                        {"YUV444P10", ".mov", "yuv444p10le", 65, 49},
                        {"GRAY8", ".mkv", "gray", 65, 49},
                        {"GRAY10", ".mp4", "gray10le", 65, 49}};
  for (const Case& c : cases) {
    // crf 0 is lossless at 8 bits, and nearly so at 10.
    const Clip source = clip(c.format, c.width, c.height);
    VideoWriterOptions written = options(source, std::string(c.format) + c.extension);
    written.crf = 0;
    write(source, written);
    EXPECT_EQ(ffprobe(written.output, "stream=width,height"),
              (Lines{std::to_string(c.width), std::to_string(c.height)}));
    const bool gray = source.info().format.family == ColorFamily::gray;  // older decoders add empty chroma planes to it
    if (!gray) {
      EXPECT_EQ(ffprobe(written.output, "stream=pix_fmt"), Lines{c.pixel_format});
    }
    test::ffmpeg({"-i", written.output.string(), "-vf", gray ? "extractplanes=y" : "null", "-f", "rawvideo",
                  (folder_ / "raw").string()});
    const std::string raw = test::read_bytes(folder_ / "raw");
    const std::string last = test::packed(source.frame(11).view());
    ASSERT_EQ(raw.size(), 12 * last.size()) << c.format;
    int largest = 0;
    const std::string got = raw.substr(11 * last.size());
    const int step = source.info().format.bytes_per_sample();
    for (std::size_t i = 0; i < last.size(); i += step) {
      const auto sample = [&](const std::string& s) {
        return static_cast<unsigned char>(s[i]) + (step == 2 ? 256 * static_cast<unsigned char>(s[i + 1]) : 0);
      };
      largest = std::max(largest, std::abs(sample(last) - sample(got)));
    }
    EXPECT_LE(largest, step == 1 ? 0 : 2) << c.format;
  }
}

TEST_F(WrittenVideo, DeepAndFloatSourcesAreWrittenAtTenBits) {
  const ScriptFolder folder;
  for (const char* format : {"YUV420P16", "YUV444PS", "YUV420P9"}) {
    const Clip source = clip(format, 64, 48);
    VideoWriter writer(options(source, "deep.mkv"));
    EXPECT_EQ(writer.format().bits, 10);
    EXPECT_FALSE(writer.format().is_float());
    EXPECT_EQ(writer.notes().at(0), "writing " + std::string(format[4] == '4' ? "yuv444p10le" : "yuv420p10le") +
                                        " as libx264, crf 16 (" + format + " is written at 10 bits)");
  }
  EXPECT_FALSE(test::fs::exists(folder_ / "deep.mkv"));  // never finished
}

TEST_F(WrittenVideo, RgbIsConvertedWithBt709) {
  const Clip source =
      output(folder_.script("rgb.vpy",
                            "core.std.BlankClip(width=64, height=48, format=vs.RGB24, length=3, color=[200, 100, 50])"
                            ".set_output()\n"));
  // BT.709, limited: Y = 16 + 219 × (0.2126 R + 0.7152 G + 0.0722 B), by hand.
  const double luma = (0.2126 * 200 + 0.7152 * 100 + 0.0722 * 50) / 255;
  const int y = static_cast<int>(std::lround(16 + 219 * luma));
  const int u = static_cast<int>(std::lround(128 + 224 * (50 / 255.0 - luma) / 1.8556));
  const int v = static_cast<int>(std::lround(128 + 224 * (200 / 255.0 - luma) / 1.5748));
  for (const auto& [name, pixel_format] : {std::pair{"r.mkv", "yuv444p"}, std::pair{"r.mp4", "yuv420p"}}) {
    VideoWriterOptions written = options(source, name);
    written.crf = 1;
    EXPECT_NE(write(source, written).find("RGB converted to YUV (BT.709)"), std::string::npos);
    EXPECT_EQ(ffprobe(folder_ / name, "stream=pix_fmt,color_range,color_space,color_transfer,color_primaries"),
              (Lines{pixel_format, "tv", "bt709", "bt709", "bt709"}));
    test::ffmpeg(
        {"-i", (folder_ / name).string(), "-f", "rawvideo", "-pix_fmt", "yuv444p", (folder_ / "raw").string()});
    const std::string raw = test::read_bytes(folder_ / "raw");
    const auto at = [&](int plane) { return static_cast<unsigned char>(raw[plane * 64 * 48 + 24 * 64 + 32]); };
    EXPECT_NEAR(at(0), y, 1);
    EXPECT_NEAR(at(1), u, 1);
    EXPECT_NEAR(at(2), v, 1);
  }
  // Y4M by our own conversion: exact.
  write(source, options(source, "r.y4m"));
  const std::string y4m = test::read_bytes(folder_ / "r.y4m");
  const auto frame = y4m.find("FRAME\n") + 6;
  EXPECT_EQ(static_cast<unsigned char>(y4m[frame]), y);
  EXPECT_EQ(static_cast<unsigned char>(y4m[frame + 64 * 48]), u);
  EXPECT_EQ(static_cast<unsigned char>(y4m[frame + 2 * 64 * 48]), v);
}

TEST_F(WrittenVideo, VariableTimestampsAreKept) {
  // Durations in milliseconds: 40 40 80 120 40 …
  const Clip source =
      clip("YUV420P8", 64, 48,
           "d = [1, 1, 2, 3]\n"
           "c = core.std.Splice([c.std.Trim(first=i, length=1).std.SetFrameProps(_DurationNum=d[i % 4], "
           "_DurationDen=25) for i in range(12)])\n");
  Lines expected;
  for (int i = 0, ms = 0; i < 12; ++i) {
    expected.push_back(std::to_string(ms / 1000) + "." + std::to_string(1000000 + ms % 1000 * 1000).substr(1));
    const int durations[] = {40, 40, 80, 120};
    ms += durations[i % 4];
  }
  for (const char* name : {"v.mkv", "v.mp4"}) {
    write(source, options(source, name));
    EXPECT_EQ(ffprobe(folder_ / name, "frame=pts_time"), expected) << name;
  }
}

TEST_F(WrittenVideo, TheLastFrameIsShownAsLongAsItShould) {
  // 12 frames of 1/10 s but for the last, longer or shorter than the others and than 1001/24000.
  for (const auto& [last, total] : {std::pair{"5, 8", "1.725000"}, std::pair{"1, 50", "1.120000"}}) {
    const Clip source = clip("YUV420P8", 64, 48,
                             "c = c.std.SetFrameProps(_DurationNum=1, _DurationDen=10)\n"
                             "num, den = " +
                                 std::string(last) +
                                 "\n"
                                 "c = c[:11] + c[11].std.SetFrameProps(_DurationNum=num, _DurationDen=den)\n");
    for (const char* name : {"l.mkv", "l.mp4"}) {
      for (const char* b_frames : {"0", "3"}) {  // with them, the last packet is not the last frame
        VideoWriterOptions written = options(source, std::string(1, last[0]) + b_frames + name);
        written.encoder_arguments = {"-bf", b_frames, "-b_strategy", "0"};
        write(source, written);
        const Lines times = ffprobe(written.output, "frame=pts_time");
        ASSERT_EQ(times.size(), 12u);
        EXPECT_EQ(times[11], "1.100000");
        // A stream's own, where the container has it: MP4 states that of the file in milliseconds, too.
        const char* entries = name == std::string("l.mp4") ? "stream=duration" : "format=duration";
        EXPECT_EQ(ffprobe(written.output, entries), Lines{total}) << name << " with B-frames " << b_frames;
      }
    }
  }
}

TEST_F(WrittenVideo, NtscTimestampsAreExact) {
  const Clip source = clip("YUV420P8", 64, 48);
  write(source, options(source, "n.mp4"));
  const Lines base = ffprobe(folder_ / "n.mp4", "stream=time_base");
  const long ticks = std::stol(base.at(0).substr(2));
  const Lines pts = ffprobe(folder_ / "n.mp4", "frame=pts");
  ASSERT_EQ(pts.size(), 12u);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(std::stol(pts[i]) * 24000, ticks * 1001 * i);
}

TEST_F(WrittenVideo, AudioIsCopied) {
  const auto audio = folder_ / "sound.mkv";
  test::ffmpeg({"-f",
                "lavfi",
                "-i",
                "sine=d=2",
                "-f",
                "lavfi",
                "-i",
                "sine=d=2",
                "-f",
                "lavfi",
                "-i",
                "testsrc=d=2:s=64x48",
                "-map",
                "0",
                "-map",
                "1",
                "-map",
                "2",
                "-c:a:0",
                "aac",
                "-c:a:1",
                "flac",
                "-metadata:s:a:1",
                "language=jpn",
                audio.string()});
  const Clip source = clip("YUV420P8", 64, 48);
  VideoWriterOptions written = options(source, "s.mkv");
  written.kept.file = audio;
  write(source, written);
  EXPECT_EQ(ffprobe(written.output, "stream=codec_name", "a"), (Lines{"aac", "flac"}));
  EXPECT_EQ(ffprobe(written.output, "stream_tags=language", "a:1").at(0), "jpn");
  // The very same packets.
  const auto packets = [](const auto& file) {
    return test::output_of(
        {"ffmpeg", "-v", "error", "-i", file.string(), "-map", "0:a:1", "-c", "copy", "-f", "md5", "-"});
  };
  EXPECT_EQ(packets(written.output), packets(audio));

  // .mp4 takes no FLAC: encoded. Half a second from the middle.
  written.output = folder_ / "s.mp4";
  written.kept.whole = false;
  written.kept.start_s = 1;
  written.kept.duration_s = 0.5;
  write(source, written);
  EXPECT_EQ(ffprobe(written.output, "stream=codec_name", "a"), (Lines{"aac", "aac"}));
  EXPECT_NEAR(std::stod(ffprobe(written.output, "stream=duration", "a:0").at(0)), 0.5, 0.05);

  written.kept.file = folder_.write("none.mkv", "nothing");
  EXPECT_NE(std::string(error_of([&] { VideoWriter{written}; }).what()).find("none.mkv"), std::string::npos);
}

TEST_F(WrittenVideo, Y4mIsReadBackEqual) {
  for (const char* format : {"YUV420P8", "YUV422P8", "YUV444P10", "GRAY8", "YUV420P10"}) {
    const Clip source = clip(format, 66, 50);
    const auto file = folder_ / (std::string(format) + ".y4m");
    write(source, options(source, std::string(format) + ".y4m"));
    EXPECT_EQ(ffprobe(file, "stream=width,height,r_frame_rate"), (Lines{"66", "50", "24000/1001"}));
    test::ffmpeg({"-i", file.string(), "-f", "rawvideo", (folder_ / "raw").string()});
    std::string expected;
    for (int n = 0; n < 12; ++n) expected += test::packed(source.frame(n).view());
    EXPECT_EQ(test::read_bytes(folder_ / "raw"), expected) << format;
  }
}

TEST_F(WrittenVideo, Y4mWarnsOnceThatItLosesTimestamps) {
  const Clip source = clip("GRAY8", 16, 8, "c = c.std.SetFrameProps(_DurationNum=1, _DurationDen=10)\n");
  Lines warnings;
  log::set_sink([&](log::Level level, std::string_view message) {
    if (level == log::Level::warning) warnings.emplace_back(message);
  });
  write(source, options(source, "v.y4m"));
  log::set_sink({});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("timestamps are lost"), std::string::npos);
}

// Run by the next test, which reads what it writes.
TEST(StandardOutput, Receives) {
  OwnedPicture picture({ColorFamily::gray}, 16, 8);
  VideoWriter writer({.output = "-", .width = 16, .height = 8, .fps = {25, 1}, .source_format = {ColorFamily::gray}});
  for (int i = 0; i < 3; ++i) writer.write(picture.view(), {1, 25});
  writer.finish();
}

TEST(StandardOutput, TakesY4m) {
  const std::string out = test::output_of({executable_path().string(), "--gtest_filter=StandardOutput.Receives"});
  const std::string frame = "FRAME\n" + std::string(16 * 8, '\0');
  EXPECT_NE(out.find("YUV4MPEG2 W16 H8 F25:1 Ip A0:0 Cmono\n" + frame + frame + frame), std::string::npos);
}

TEST_F(WrittenVideo, WhatCannotWorkIsRefusedAtOnce) {
  const Clip source = clip("YUV420P8", 64, 48);
  const auto message = [&](const VideoWriterOptions& options, ErrorKind kind) {
    const Error error = error_of([&] { VideoWriter{options}; });
    EXPECT_EQ(error.kind(), kind);
    return std::string(error.what());
  };
  VideoWriterOptions bad = options(source, "a.webp");
  EXPECT_NE(message(bad, ErrorKind::usage).find("unknown kind of video \".webp\" (allowed: .mkv"), std::string::npos);
  bad = options(source, "a.mkv");
  bad.width = 63;
  EXPECT_NE(message(bad, ErrorKind::usage).find("YUV420P8 cannot be 63x48"), std::string::npos);
  bad = options(source, "a.mkv");
  bad.ffmpeg = "/nowhere/ffmpeg";
  const std::string missing = message(bad, ErrorKind::failed);
  EXPECT_NE(missing.find("/nowhere/ffmpeg"), std::string::npos);
  EXPECT_NE(missing.find("--ffmpeg"), std::string::npos);
  bad = options(source, "a.mkv");
  bad.codec = "libx999";
  EXPECT_NE(message(bad, ErrorKind::failed).find("no encoder \"libx999\""), std::string::npos);
  bad = options(source, "a.mkv");
  bad.source_format = {ColorFamily::yuv, SampleType::integer, 16, 2, 0};
  EXPECT_NE(message(bad, ErrorKind::usage).find("YUV411P10 cannot be written"), std::string::npos);
}

TEST_F(WrittenVideo, FfmpegsOwnWordsAreInTheError) {
  const Clip source = clip("YUV420P8", 64, 48);
  VideoWriterOptions bad = options(source, "a.mkv");
  bad.ffmpeg = folder_
                   .write("ffmpeg",
                          "#!/bin/sh\n"
                          "[ \"$2\" = -h ] && echo 'Encoder libx264' && exit 0\n"
                          "head -c 5000 > /dev/null\n"
                          "echo 'the disk is on fire' >&2\n"
                          "exit 3\n")
                   .string();
  test::fs::permissions(bad.ffmpeg, test::fs::perms::owner_all);
  const Error error = error_of([&] { write(source, bad); });
  EXPECT_EQ(error.kind(), ErrorKind::failed);
  EXPECT_NE(std::string(error.what()).find("the disk is on fire"), std::string::npos) << error.what();
  EXPECT_FALSE(test::fs::exists(bad.output));
}

TEST_F(WrittenVideo, WhatTheEncoderDoesNotTakeIsKnownBeforeTheFirstFrame) {
  const Clip source = clip("YUV420P8", 64, 48);
  const auto message = [&](ErrorKind kind, const std::function<void(VideoWriterOptions&)>& change) {
    VideoWriterOptions bad = options(source, "bad.mkv");
    change(bad);
    const Error error = error_of([&] { VideoWriter{bad}; });
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::distance(test::fs::directory_iterator(folder_.path()), {}), 1);  // the script
    return std::string(error.what());
  };
  using testing::HasSubstr;
  EXPECT_THAT(message(ErrorKind::usage, [](auto& o) { o.pixel_format = "yuv411p"; }),
              HasSubstr("--pix-fmt yuv411p: libx264 takes yuv420p yuvj420p"));
  EXPECT_THAT(message(ErrorKind::usage,
                      [](auto& o) {
                        o.codec = "ffv1";
                        o.crf = 20;
                      }),
              HasSubstr("--crf 20: ffv1 has no such option"));
  EXPECT_THAT(message(ErrorKind::failed,
                      [](auto& o) {
                        o.encoder_arguments = {"-preset", "lento"};
                      }),
              HasSubstr("lento"));
  EXPECT_THAT(message(ErrorKind::failed,
                      [](auto& o) {
                        o.encoder_arguments = {"-no-such-option", "1"};
                      }),
              HasSubstr("no-such-option"));
  EXPECT_THAT(message(ErrorKind::usage,
                      [&](auto& o) {
                        o.output = folder_ / "a.y4m";
                        o.segments.frames = 5;
                      }),
              HasSubstr("--segments: is for encoded video"));
}

TEST_F(WrittenVideo, AnotherPixelFormatIsFedAtItsDepth) {
  const Clip source = clip("YUV420P8", 64, 48);
  VideoWriterOptions deep = options(source, "deep.mkv");
  deep.pixel_format = "yuv444p10le";
  {
    VideoWriter writer(deep);
    EXPECT_EQ(writer.format().name(), "YUV420P10");
    EXPECT_EQ(writer.notes().at(0), "writing yuv444p10le as libx264, crf 16 (YUV420P8 is written at 10 bits)");
    writer.write(OwnedPicture(writer.format(), 64, 48).view(), {});
    writer.finish();
  }
  EXPECT_EQ(ffprobe(deep.output, "stream=pix_fmt"), Lines{"yuv444p10le"});

  // RGB stays RGB where it is asked for, to the last bit.
  const Clip rgb = output(folder_.script(
      "rgb.vpy",
      "core.std.BlankClip(width=64, height=48, format=vs.RGB24, length=2, color=[200, 100, 50]).set_output()\n"));
  VideoWriterOptions kept = options(rgb, "rgb.mkv");
  kept.codec = "ffv1";
  kept.pixel_format = "bgr0";
  EXPECT_EQ(write(rgb, kept), "writing bgr0 as ffv1");
  test::ffmpeg({"-i", kept.output.string(), "-f", "rawvideo", "-pix_fmt", "rgb24", (folder_ / "raw").string()});
  EXPECT_EQ(test::read_bytes(folder_ / "raw").substr(0, 3), "\xC8\x64\x32");
}

TEST_F(WrittenVideo, SegmentsGiveTheSameVideo) {
  // 24000/1001 with one frame in four twice as long, and the last: no segment ends on a whole millisecond.
  const Clip source =
      clip("YUV420P8", 64, 48,
           "c = core.std.Splice([c.std.Trim(first=i, length=1).std.SetFrameProps(_DurationNum=1001 * (2 if i % 4 == 1 "
           "or i == 11 else 1), _DurationDen=24000) for i in range(12)])\n");
  for (const char* extension : {"mkv", "mp4"}) {
    const auto named = [&](const char* name) { return std::string(name) + "." + extension; };
    VideoWriterOptions whole = options(source, named("whole")), parts = options(source, named("parts"));
    whole.crf = parts.crf = 0;  // lossless: where the encoder was begun anew does not show
    parts.segments = {.frames = 5, .made_of = {{"model", "a"}}};
    write(source, whole);
    {
      VideoWriter writer(parts);
      for (int n = 0; n < 7; ++n) writer.write(source.frame(n).view(), source.frame(n).duration());
    }
    EXPECT_FALSE(test::fs::exists(parts.output));
    VideoWriterOptions other = parts;
    other.segments.made_of = {{"model", "b"}};
    const Error changed = error_of([&] { VideoWriter{other}; });
    EXPECT_EQ(changed.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(changed.what()).find("model was \"a\", is \"b\""), std::string::npos) << changed.what();

    VideoWriter writer(parts);
    EXPECT_EQ(writer.finished_frames(), 5);
    EXPECT_NE(std::string(error_of([&] { VideoWriter{parts}; }).what()).find("in use by process"), std::string::npos);
    for (int n = 5; n < 12; ++n) writer.write(source.frame(n).view(), source.frame(n).duration());
    writer.finish();
    for (const char* entries : {"frame=pts", "stream=time_base,r_frame_rate,color_range,pix_fmt", "format=duration"}) {
      EXPECT_EQ(ffprobe(parts.output, entries), ffprobe(whole.output, entries)) << extension << " " << entries;
    }
    const auto pictures = [](const auto& file) {
      return test::output_of({"ffmpeg", "-v", "error", "-i", file.string(), "-f", "framemd5", "-"});
    };
    EXPECT_EQ(pictures(parts.output), pictures(whole.output));
    EXPECT_FALSE(test::fs::exists(folder_ / ("." + named("parts") + ".segments")));
  }
}

TEST_F(WrittenVideo, SegmentsBegunAfreshAreThrownAway) {
  const Clip source = clip("YUV420P8", 64, 48);
  VideoWriterOptions parts = options(source, "parts.mkv");
  parts.segments = {.frames = 2, .made_of = {{"model", "a"}}};
  const auto begin = [&] {
    VideoWriter writer(parts);
    const std::int64_t finished = writer.finished_frames();
    for (int n = 0; n < 4; ++n) writer.write(source.frame(n).view(), {});
    return finished;
  };
  EXPECT_EQ(begin(), 0);
  EXPECT_EQ(begin(), 4);
  test::fs::resize_file(folder_ / ".parts.mkv.segments" / "000002.nut", 100);
  EXPECT_EQ(begin(), 4);  // the third is not whole any more
  parts.segments.made_of = {{"model", "b"}};
  parts.segments.fresh = true;
  EXPECT_EQ(begin(), 0);
}

TEST_F(WrittenVideo, AbandonedOutputLeavesNothing) {
  const Clip source = clip("YUV420P8", 64, 48);
  const auto files = [&] { return std::distance(test::fs::directory_iterator(folder_.path()), {}); };
  const auto before = files();
  for (const char* name : {"a.mkv", "a.y4m"}) {
    VideoWriter writer(options(source, name));
    writer.write(source.frame(0).view(), {});
  }
  EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace reelgrad
