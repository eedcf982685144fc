// New frames "on the card" on a machine without one: VapourSynth is real, its frames lie in host memory, and its Vulkan
// functions are ours.
#include "reelgrad/clip/gpu_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <cstring>

#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/clip_test_util.h"
#include "reelgrad/clip/vs_library.h"

namespace reelgrad {
namespace {

using testing::HasSubstr;

const VSAPI* host_api() {
  return vapoursynth().api;
}

// What became of the planes since a test began.
struct Published {
  int exports = 0, producers = 0;
  int refused_plane = -1;
} published;

VSFrame* VS_CC new_frame(const VSVideoFormat* format, int width, int height, const VSFrame* props, VSCore* core) {
  return width == 13 ? nullptr : host_api()->newVideoFrame(format, width, height, props, core);
}

// The "allocation" begins 64 bytes before the plane.
int VS_CC export_new(const VSFrame* frame, int plane, vulkan::VSVulkanExportedMemory* out, char* error, int size) {
  if (plane == published.refused_plane) {
    std::snprintf(error, static_cast<std::size_t>(size), "written already");
    return 1;
  }
  ++published.exports;
  out->memoryId = reinterpret_cast<std::uint64_t>(host_api()->getReadPtr(frame, plane)) - 64;
  out->memorySize = 64 + host_api()->getStride(frame, plane) * host_api()->getFrameHeight(frame, plane);
  out->offset = 64;
  out->handle = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return 0;
}

void VS_CC publish(const VSFrame*, int, vulkan::VSGPUTimeline* timeline, std::uint64_t) {
  EXPECT_EQ(timeline, nullptr);
  ++published.producers;
}

constexpr vulkan::Api kNewFrames{
    .newGPUVideoFrame = new_frame, .setGPUPlaneProducer = publish, .exportGPUPlane = export_new};

struct HostCanvas : GpuCanvas {
  std::array<std::byte*, 3> planes{};
  std::array<std::ptrdiff_t, 3> strides{};
};

// Takes a descriptor of the first plane alone, as of an allocation that it knows.
class HostWriter : public GpuFrameWriter {
 public:
  std::shared_ptr<const GpuCanvas> open(const GpuFrame& frame) override {
    EXPECT_TRUE(frame.export_memory(0));
    EXPECT_FALSE(frame.export_memory(0)) << "each is there once";
    auto canvas = std::make_shared<HostCanvas>();
    for (int p = 0; p < frame.format.planes(); ++p) {
      const GpuPlane& plane = frame.planes[p];
      EXPECT_EQ(plane.semaphore, 0U);
      canvas->planes[p] = reinterpret_cast<std::byte*>(plane.memory.memory_id + plane.memory.offset);
      canvas->strides[p] = plane.stride_bytes;
    }
    return canvas;
  }
};

class GpuOutputTest : public testing::Test {
 protected:
  void SetUp() override {
    published = {};
    clip_ = test::output(folder_.script("f.vpy",
                                        "core.std.BlankClip(width=30, height=20, format=vs.YUV420P10, length=2)"
                                        ".std.SetFrameProps(Note='kept').set_output()\n"));
  }

  GpuOutput output(int width) const {
    VSVideoInfo info = *host_api()->getVideoInfo(clip_.impl().source.get());
    info.width = width;
    return {host_api(), &kNewFrames, info, std::make_unique<HostWriter>()};
  }
  VSCore* core() const { return clip_.impl().core->core(); }

  static std::size_t descriptors() {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
  }

  test::ScriptFolder folder_;
  Clip clip_;
};

TEST_F(GpuOutputTest, WhatIsWrittenToTheCanvasIsInTheFrame) {
  const GpuOutput made_of = output(60);
  const VSFrame* source = clip_.impl().fetch(0);
  const std::size_t before = descriptors();
  const GpuOutput::Made made = made_of.make(source, core());
  EXPECT_EQ(descriptors(), before) << "those that the writer does not take are closed";
  EXPECT_EQ(made.view.width, 60);
  EXPECT_EQ(made.view.gpu, made.canvas.get());
  EXPECT_EQ(made.view.planes[0].data, nullptr);
  const auto& canvas = dynamic_cast<const HostCanvas&>(*made.canvas);
  for (int p = 0; p < 3; ++p) std::memset(canvas.planes[p] + 3 * canvas.strides[p], 7 + p, 4);
  made_of.finish(made.frame);
  EXPECT_EQ(published.exports, 3);
  EXPECT_EQ(published.producers, 3);
  for (int p = 0; p < 3; ++p) {
    const auto* row = host_api()->getReadPtr(made.frame, p) + 3 * host_api()->getStride(made.frame, p);
    EXPECT_EQ(row[2], 7 + p);
  }
  const char* note = host_api()->mapGetData(host_api()->getFramePropertiesRO(made.frame), "Note", 0, nullptr);
  EXPECT_STREQ(note, "kept");
  host_api()->freeFrame(made.frame);
  host_api()->freeFrame(source);
}

TEST_F(GpuOutputTest, FailuresAreInWordsAndLeaveNothing) {
  const std::size_t before = descriptors();
  published.refused_plane = 2;
  EXPECT_THAT(test::error_of([&] { output(60).make(nullptr, core()); }).what(),
              HasSubstr("cannot export plane 2 of a new frame: written already"));
  EXPECT_THAT(test::error_of([&] { output(13).make(nullptr, core()); }).what(), HasSubstr("cannot make a frame"));
  EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace reelgrad
