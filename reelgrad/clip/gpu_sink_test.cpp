// The filter behind Clip::on_gpu on a machine without a card: VapourSynth is real, its frames lie in host memory, and
// its Vulkan functions are ours.
#include "reelgrad/clip/gpu_sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/clip_test_util.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/clip/vs_library.h"

namespace reelgrad {
namespace {

using test::error_of;
using test::ScriptFolder;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t kSemaphore = 0x1000;

const VSAPI* vs() {
  return vapoursynth().api;
}

int a_descriptor() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

// The "allocation" is the plane itself, 64 bytes before its first row.
int VS_CC export_plane(const VSFrame* frame, int plane, vulkan::VSVulkanExportedMemory* out, char* error, int size) {
  const int height = vs()->getFrameHeight(frame, plane);
  int ignored = 0;
  if (vs()->mapGetInt(vs()->getFramePropertiesRO(frame), "NoExport", 0, &ignored) != 0) {
    std::snprintf(error, static_cast<std::size_t>(size), "no memory of that kind");
    return 1;
  }
  out->memoryId = reinterpret_cast<std::uint64_t>(vs()->getReadPtr(frame, plane)) - 64;
  out->memorySize = 64 + vs()->getStride(frame, plane) * height;
  out->offset = 64;
  out->handle = a_descriptor();
  return 0;
}

// All planes in one allocation, which begins at 64.
std::atomic<int> exports_of_one = 0;
int VS_CC export_of_one(const VSFrame* frame, int plane, vulkan::VSVulkanExportedMemory* out, char*, int) {
  ++exports_of_one;
  out->memoryId = 64;
  out->memorySize = std::uint64_t{1} << 56;
  out->offset = reinterpret_cast<std::uint64_t>(vs()->getReadPtr(frame, plane)) - 64;
  out->handle = a_descriptor();
  return 0;
}

// Addresses "on the card" are those in memory.
std::uint64_t address_of(vulkan::VkDevice, const vulkan::VkBufferDeviceAddressInfo* info) {
  return reinterpret_cast<std::uint64_t>(info->buffer);
}

std::uint64_t scrambled_address(vulkan::VkDevice, const vulkan::VkBufferDeviceAddressInfo* info) {
  return reinterpret_cast<std::uint64_t>(info->buffer) * 3;
}

template <vulkan::PFN_vkGetBufferDeviceAddress kAddress>
int VS_CC handles(VSCore*, vulkan::VSVulkanCoreHandles* out, char*, int) {
  out->getInstanceProcAddr = [](vulkan::VkInstance, const char* name) {
    const bool known = std::string_view(name) == "vkGetBufferDeviceAddress";
    return known ? reinterpret_cast<vulkan::PFN_vkVoidFunction>(kAddress) : nullptr;
  };
  return 0;
}

int VS_CC plane_info(const VSFrame* frame, int plane, vulkan::VSVulkanPlaneInfo* info) {
  info->buffer = reinterpret_cast<vulkan::VkBuffer>(const_cast<std::uint8_t*>(vs()->getReadPtr(frame, plane)));
  info->bufferSize = static_cast<std::uint64_t>(vs()->getStride(frame, plane)) * vs()->getFrameHeight(frame, plane);
  info->readySemaphore = reinterpret_cast<vulkan::VkSemaphore>(kSemaphore);
  info->readyValue = 100 + plane;
  return 0;
}

int VS_CC export_semaphore(VSCore*, vulkan::VkSemaphore semaphore, vulkan::VSVulkanExportedSemaphore* out, char*, int) {
  out->handle = reinterpret_cast<std::uint64_t>(semaphore) == kSemaphore ? a_descriptor() : -1;
  return 0;
}

const VSFrame* VS_CC exportable_frame(int n, VSNode* node, VSFrameContext* context, char*, int) {
  return vs()->getFrameFilter(n, node, context);
}

constexpr vulkan::Api kVulkan{.getVulkanHandles = handles<address_of>,
                              .getGPUPlane = plane_info,
                              .exportGPUPlane = export_plane,
                              .exportGPUSemaphore = export_semaphore,
                              .getExportableFrameFilter = exportable_frame};

template <vulkan::PFN_vkGetBufferDeviceAddress kAddress>
constexpr vulkan::Api kOneAllocation{.getVulkanHandles = handles<kAddress>,
                                     .getGPUPlane = plane_info,
                                     .exportGPUPlane = export_of_one,
                                     .exportGPUSemaphore = export_semaphore,
                                     .getExportableFrameFilter = exportable_frame};

struct CopiedPicture : GpuPicture {
  std::string bytes;  // rows of all planes
};

// Keeps each frame until the next one comes, as a card does.
class CopyingReader : public GpuFrameReader {
 public:
  explicit CopyingReader(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~CopyingReader() override { --alive_; }

  std::shared_ptr<const GpuPicture> read(GpuFrame frame) override {
    if (frame.width == 13) fail("no memory for pictures");
    auto picture = std::make_shared<CopiedPicture>();
    for (int p = 0; p < frame.format.planes(); ++p) append(frame, p, picture->bytes);
    EXPECT_TRUE(frame.export_semaphore(kSemaphore));
    const std::lock_guard lock(mutex_);
    last_ = std::move(frame.owner);
    return picture;
  }

 private:
  void append(const GpuFrame& frame, int p, std::string& bytes) {
    const GpuPlane& plane = frame.planes[p];
    if (p == 0 && !memory_opened_.exchange(true)) {
      EXPECT_TRUE(frame.export_memory(p));
    }
    EXPECT_EQ(plane.semaphore, kSemaphore);
    EXPECT_EQ(plane.ready_value, 100u + p);
    const auto row =
        static_cast<std::size_t>(frame.format.plane_width(frame.width, p)) * frame.format.bytes_per_sample();
    for (int y = 0; y < frame.format.plane_height(frame.height, p); ++y) {
      const auto at = plane.memory.memory_id + plane.memory.offset + y * plane.stride_bytes;
      EXPECT_LE(at + row, plane.memory.memory_id + plane.memory.memory_bytes);
      bytes.append(reinterpret_cast<const char*>(at), row);
    }
  }

  std::atomic<int>& alive_;
  std::atomic<bool> memory_opened_ = false;
  std::mutex mutex_;
  std::shared_ptr<const void> last_;
};

// Noise in two planes of another size; frame 60 fails, frame 61 cannot be exported.
constexpr const char* kFrames =
    "import random\n"
    "c = core.std.BlankClip(width=@WIDTH@, height=9, format=vs.YUV444P10, length=100, keep=1)\n"
    "alpha = core.std.BlankClip(width=4, height=4, format=vs.GRAY8, length=100)\n"
    "def fill(n, f):\n"
    "    if n == 60: raise RuntimeError('broken')\n"
    "    g = f[0].copy()\n"
    "    r = random.Random(n)\n"
    "    for p in range(3):\n"
    "        for y in range(9):\n"
    "            for x in range(g.width): g[p][y, x] = r.randrange(1024)\n"
    "    g.props._Matrix = n % 5 + 4\n"
    "    g.props._Alpha = f[1]\n"
    "    if n == 61: g.props.NoExport = 1\n"
    "    return g\n"
    "c.std.ModifyFrame([c, alpha], fill).set_output()\n";

class SinkWithoutACard : public testing::Test {
 protected:
  // The clip and the same one read "on the card".
  std::pair<Clip, Clip> open(int width = 31, const vulkan::Api& vk = kVulkan) {
    std::string text = kFrames;
    text.replace(text.find("@WIDTH@"), 7, std::to_string(width));
    const Clip clip = test::output(folder_.script("f.vpy", text));
    const Clip::Impl& impl = clip.impl();
    auto pictures = std::make_shared<PicturesInTransit>();
    VSNode* sink = make_gpu_sink({impl.core->api(), &vk, impl.core->core(), impl.source.get(), impl.info.format,
                                  impl.info.width, impl.info.height},
                                 std::make_unique<CopyingReader>(readers_), pictures);
    auto origin = std::make_shared<const Clip::Impl>(impl, "a test");
    return {clip, Clip(std::make_shared<const Clip::Impl>(std::move(origin), sink, std::move(pictures)))};
  }

  static std::string bytes(const Frame& frame) {
    const auto picture = std::dynamic_pointer_cast<const CopiedPicture>(frame.gpu_picture());
    return picture ? picture->bytes : "no picture";
  }

  static std::size_t open_descriptors() {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
  }

  ScriptFolder folder_;
  std::atomic<int> readers_ = 0;
};

TEST_F(SinkWithoutACard, FramesCarryThePicturesAndTheProperties) {
  const auto [host, card] = open();
  EXPECT_EQ(card.info().width, 31);
  EXPECT_EQ(card.info().format.name(), "YUV444P10");
  const std::vector<std::int64_t> order{0, 1, 2, 7, 7, 7, 7, 99, 3, 7, 50, 50};
  FrameStream stream(card, order, {.in_flight = 6});
  for (const std::int64_t n : order) {
    const Frame frame = stream.next().value(), reference = host.frame(n);
    EXPECT_EQ(frame.number(), n);
    EXPECT_EQ(bytes(frame), test::packed(reference.view())) << n;
    EXPECT_EQ(frame.view().color, reference.view().color);
    EXPECT_EQ(frame.duration(), reference.duration());
    EXPECT_EQ(frame.view().width, 31);
    EXPECT_EQ(frame.view().format, reference.view().format);
    EXPECT_EQ(frame.view().planes[0].data, nullptr);
  }
  EXPECT_EQ(bytes(card.frame(42)), test::packed(host.frame(42).view()));
  EXPECT_EQ(card.impl().pictures->size(), 0u);
}

TEST_F(SinkWithoutACard, AnAllocationThatIsKnownIsNotExportedAgain) {
  const auto [host, card] = open(31, kOneAllocation<address_of>);
  const auto read = [&, &host = host, &card = card] {
    exports_of_one = 0;
    FrameStream stream(card, 0, 50, {.in_flight = 4});
    for (int n = 0; n < 50; ++n) EXPECT_EQ(bytes(stream.next().value()), test::packed(host.frame(n).view())) << n;
    return exports_of_one.load();
  };
  EXPECT_LE(read(), AllocationMap::kProofs + 1 + 3 * 4) << "the reader's own, and four frames may prove at once";
  EXPECT_EQ(read(), 0);
}

TEST_F(SinkWithoutACard, WhereAddressesTellNothingEveryPlaneIsExported) {
  const auto [host, card] = open(31, kOneAllocation<scrambled_address>);
  exports_of_one = 0;
  FrameStream stream(card, 0, 50, {.in_flight = 4});
  for (int n = 0; n < 50; ++n) EXPECT_EQ(bytes(stream.next().value()), test::packed(host.frame(n).view())) << n;
  EXPECT_EQ(exports_of_one, 3 * 50 + 1);
}

TEST_F(SinkWithoutACard, ErrorsComeInTheirPlace) {
  const auto [host, card] = open();
  FrameStream stream(card, {59, 60, 61, 62}, {.in_flight = 4});
  EXPECT_EQ(bytes(stream.next().value()), test::packed(host.frame(59).view()));
  const std::string broken = error_of([&] { stream.next(); }).what();
  EXPECT_THAT(broken, StartsWith("f.vpy, output 0: frame 60: "));
  EXPECT_THAT(broken, HasSubstr("broken"));
  const std::string refused = error_of([&] { stream.next(); }).what();
  EXPECT_THAT(refused, StartsWith("f.vpy, output 0: frame 61: "));
  EXPECT_THAT(refused, HasSubstr("VapourSynth cannot export plane 0: no memory of that kind"));
  EXPECT_EQ(bytes(stream.next().value()), test::packed(host.frame(62).view()));
  const Clip narrow = open(13).second;
  EXPECT_THAT(error_of([&] { narrow.frame(5); }).what(), HasSubstr("frame 5: no memory for pictures"));
}

TEST_F(SinkWithoutACard, StreamsThatEndEarlyLeaveNothing) {
  {
    const auto [host, card] = open();
    card.frame(0);
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 20; ++i) {
      FrameStream stream(card, i, 40, {.in_flight = 6});
      for (int n = 0; n < 3; ++n) EXPECT_EQ(stream.next().value().number(), i + n);
    }
    EXPECT_EQ(card.impl().pictures->size(), 0u);
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(readers_, 1);
  }
  EXPECT_EQ(readers_, 0);
}

TEST_F(SinkWithoutACard, SeveralStreamsAskForTheSameFrames) {
  const auto [host, card] = open();
  std::vector<std::string> expected;
  for (int n = 0; n < 50; ++n) expected.push_back(test::packed(host.frame(n).view()));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      FrameStream stream(card, 0, 50, {.in_flight = 6});
      for (int n = 0; n < 50; ++n) EXPECT_EQ(bytes(stream.next().value()), expected[n]) << n;
    });
  }
  threads.clear();
  EXPECT_EQ(card.impl().pictures->size(), 0u);
}

TEST_F(SinkWithoutACard, PicturesOutliveEverythingElse) {
  std::shared_ptr<const GpuPicture> picture;
  std::string expected;
  {
    const auto [host, card] = open();
    expected = test::packed(host.frame(4).view());
    picture = card.frame(4).gpu_picture();
  }
  EXPECT_EQ(readers_, 0);
  EXPECT_EQ(std::dynamic_pointer_cast<const CopiedPicture>(picture)->bytes, expected);
}

TEST_F(SinkWithoutACard, ResizedClipsAreOfHostFrames) {
  const auto [host, card] = open();
  EXPECT_EQ(test::packed(card.bicubic(16, 8).frame(3).view()), test::packed(host.bicubic(16, 8).frame(3).view()));
}

}  // namespace
}  // namespace reelgrad
