#include "reelgrad/doctor/probes/program_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reelgrad/doctor/testing/fake_root.h"

namespace reelgrad {
namespace {

using test::FakeRoot;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kEnough{10};

void add_program(const FakeRoot& root, const char* path, const std::string& script) {
  root.write(path, "#!/bin/sh\n" + script);
  std::filesystem::permissions(root.host(path), std::filesystem::perms::owner_all);
}

constexpr const char* kFakeFfmpeg =
    "case \"$*\" in\n"
    "*-version*) echo 'ffmpeg version 7.1.1-mine Copyright (c) 2000-2025';;\n"
    "*-encoders*) echo ' V....D libx264              libx264 H.264 (codec h264)'\n"
    "  echo ' V....D hevc_nvenc           NVIDIA NVENC hevc encoder (codec hevc)'\n"
    "  echo ' VF..D. ffv1                 FFmpeg video codec #1';;\n"
    "esac\n";

TEST(FfmpegProbe, TheFirstOnThePathIsAsked) {
  const FakeRoot root({{"/opt/a/ffmpeg", "not a program"}});
  add_program(root, "/opt/b/ffmpeg", kFakeFfmpeg);
  add_program(root, "/opt/c/ffmpeg", "exit 1\n");
  const FfmpegFacts facts = probe_ffmpeg(root.files(), {{"PATH", "/missing:/opt/a:/opt/b:/opt/c"}}, kEnough);
  EXPECT_EQ(facts.path, "/opt/b/ffmpeg");
  EXPECT_EQ(facts.version, "7.1.1-mine");
  EXPECT_THAT(facts.encoders, ElementsAre("libx264", "ffv1", "hevc_nvenc"));
}

TEST(FfmpegProbe, AnEmptyPathHasNone) {
  const FakeRoot root;
  add_program(root, "/usr/bin/ffmpeg", kFakeFfmpeg);
  EXPECT_EQ(probe_ffmpeg(root.files(), {{"PATH", ""}}, kEnough).path, "");
  EXPECT_EQ(probe_ffmpeg(root.files(), {}, kEnough).path, "/usr/bin/ffmpeg");
}

TEST(FfmpegProbe, OneThatFailsOrHangsIsThereWithoutAVersion) {
  const FakeRoot root;
  add_program(root, "/usr/bin/ffmpeg", "sleep 60\n");
  const auto begin = std::chrono::steady_clock::now();
  FfmpegFacts facts = probe_ffmpeg(root.files(), {}, std::chrono::milliseconds(200));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(facts.path, "/usr/bin/ffmpeg");
  EXPECT_EQ(facts.version, "");
  add_program(root, "/usr/bin/ffmpeg", "echo 'ffmpeg version 1 c'; exit 127\n");
  facts = probe_ffmpeg(root.files(), {}, kEnough);
  EXPECT_EQ(facts.version, "");
  EXPECT_THAT(facts.encoders, IsEmpty());
}

}  // namespace
}  // namespace reelgrad
