// Lanes, graphs and budgets on a card.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/restore/test_networks.h"
#include "reelgrad/restore/test_pictures.h"

namespace reelgrad {
namespace {

using test::bytes_of_picture;
using test::clip_of_noise;

constexpr VideoFormat kYuv420{ColorFamily::yuv, SampleType::integer, 8, 1, 1};
const torch::Device kCard(torch::kCUDA, 0);

std::shared_ptr<Network> compact_for_lanes(int features = 24, int convs = 6) {
  torch::manual_seed(3);
  NetworkSpec spec;
  spec.options = {{"features", std::to_string(features)}, {"convs", std::to_string(convs)}};
  return make_network(spec);
}

std::string restored_frame(Restorer& restorer, const OwnedPicture& picture, std::int64_t number) {
  const FrameView view = picture.view();
  OwnedPicture out(view.format, view.width * restorer.info().scale, view.height * restorer.info().scale);
  restorer.restore({.window = {{view, number}}, .clip = "clip", .frame = number}, {out.mutable_view()});
  return bytes_of_picture(out);
}

std::vector<std::string> restored_by(Restorer& restorer, const std::vector<OwnedPicture>& clip, int threads) {
  std::vector<std::string> found(clip.size());
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      for (std::size_t n = next++; n < clip.size(); n = next++) {
        found[n] = restored_frame(restorer, clip[n], static_cast<std::int64_t>(n));
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  return found;
}

class RestorerLanesGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  }
};

TEST_F(RestorerLanesGpuTest, OneAndFourLanesGiveTheSameOfTwoHundredFrames) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, 160, 96, 200);
  for (const int tile : {0, 64}) {
    Restorer one(compact_for_lanes(), NetworkSpec{}, {.device = kCard, .tile_px = tile, .overlap_px = 8, .streams = 1});
    const std::vector<std::string> expected = restored_by(one, clip, 1);
    Restorer four(compact_for_lanes(), NetworkSpec{},
                  {.device = kCard, .tile_px = tile, .overlap_px = 8, .streams = 4});
    for (int run = 0; run < 5; ++run) EXPECT_TRUE(restored_by(four, clip, 8) == expected) << tile << ", run " << run;
    EXPECT_EQ(four.streams(), 4);
  }
}

TEST_F(RestorerLanesGpuTest, GraphsGiveWhatOpsGive) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, 160, 96, 3);
  for (const bool ensemble : {false, true}) {
    RestoreOptions options{.device = kCard, .strength = 0.75, .ensemble = ensemble};
    Restorer graphs(compact_for_lanes(), NetworkSpec{}, options);
    options.capture = false;
    Restorer ops(compact_for_lanes(), NetworkSpec{}, options);
    for (const OwnedPicture& picture : clip) {
      EXPECT_TRUE(restored_frame(graphs, picture, 0) == restored_frame(ops, picture, 0)) << ensemble;
    }
  }
}

// Frames of a window are kept on the card by number.
TEST_F(RestorerLanesGpuTest, WindowsAreTheSameFromManyThreads) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, 96, 64, 40);
  Restorer restorer(std::make_shared<FrameMixer>(5), NetworkSpec{.window = 5}, {.device = kCard, .precision = "fp32"});
  Restorer on_cpu(std::make_shared<FrameMixer>(5), NetworkSpec{.window = 5}, {});
  const auto frame = [&](Restorer& by, std::size_t n, bool numbered) {
    RestoreCall call{.clip = "clip"};
    for (std::int64_t i = static_cast<std::int64_t>(n) - 2; i <= static_cast<std::int64_t>(n) + 2; ++i) {
      const auto clamped = std::clamp<std::int64_t>(i, 0, 39);
      call.window.push_back(
          {clip[static_cast<std::size_t>(clamped)].view(), numbered ? std::optional(clamped) : std::nullopt});
    }
    OwnedPicture out(kYuv420, 96, 64);
    by.restore(call, {out.mutable_view()});
    return bytes_of_picture(out);
  };
  std::atomic<std::size_t> next = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < 120; i = next++) {
        const std::size_t n = i * 7 % 40;
        if (frame(restorer, n, true) != frame(restorer, n, false)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const std::string card = frame(restorer, 5, true), cpu = frame(on_cpu, 5, false);
  int largest = 0;
  for (std::size_t i = 0; i < card.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<unsigned char>(card[i]) - static_cast<unsigned char>(cpu[i])));
  }
  EXPECT_LE(largest, 1);
}

// --- Networks that work in two stages ---

NetworkSpec fastdvdnet_for_lanes(int features = 16) {
  return {.arch = "fastdvdnet", .scale = 1, .window = 5, .options = {{"features", std::to_string(features)}}};
}

Restorer restorer_of_windows(const NetworkSpec& spec, const RestoreOptions& options) {
  torch::manual_seed(3);
  return Restorer(make_network(spec), spec, options);
}

std::string restored_window(Restorer& restorer, const std::vector<OwnedPicture>& clip, std::size_t n, bool numbered) {
  const FrameView first = clip.front().view();
  const auto last = static_cast<std::int64_t>(clip.size()) - 1;
  RestoreCall call{.clip = "clip", .frame = static_cast<std::int64_t>(n)};
  for (std::int64_t i = call.frame - 2; i <= call.frame + 2; ++i) {
    const auto clamped = std::clamp<std::int64_t>(i, 0, last);
    call.window.push_back(
        {clip[static_cast<std::size_t>(clamped)].view(), numbered ? std::optional(clamped) : std::nullopt});
  }
  OwnedPicture out(first.format, first.width * restorer.info().scale, first.height * restorer.info().scale);
  restorer.restore(call, {out.mutable_view()});
  return bytes_of_picture(out);
}

TEST_F(RestorerLanesGpuTest, PartsOfWindowsThatAreKeptChangeNoBit) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, 160, 96, 40);
  for (const NetworkSpec& spec :
       {fastdvdnet_for_lanes(),
        NetworkSpec{.arch = "tscunet", .scale = 2, .window = 5, .options = {{"blocks", "1"}}}}) {
    Restorer one = restorer_of_windows(spec, {.device = kCard, .streams = 1});
    std::vector<std::string> expected;
    for (std::size_t n = 0; n < clip.size(); ++n) expected.push_back(restored_window(one, clip, n, false));
    for (std::size_t n = 0; n < clip.size(); ++n) {
      EXPECT_TRUE(restored_window(one, clip, n, true) == expected[n]) << spec.arch << ", frame " << n;
    }
    Restorer four = restorer_of_windows(spec, {.device = kCard, .streams = 4});
    Restorer ops = restorer_of_windows(spec, {.device = kCard, .streams = 3, .capture = false});
    for (Restorer* restorer : {&four, &ops}) {
      for (const std::size_t stride : {1, 7, 11}) {  // 1: in order
        std::atomic<std::size_t> next = 0;
        std::atomic<int> wrong = 0;
        std::vector<std::thread> threads;
        for (int t = 0; t < 8; ++t) {
          threads.emplace_back([&] {
            for (std::size_t i = next++; i < 80; i = next++) {
              const std::size_t n = i * stride % clip.size();
              if (restored_window(*restorer, clip, n, true) != expected[n]) ++wrong;
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(wrong, 0) << spec.arch << ", stride " << stride;
      }
    }
  }
}

TEST_F(RestorerLanesGpuTest, IsCapturedWhileAnotherThreadAllocates) {
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) {
      void* memory = nullptr;
      if (cudaMalloc(&memory, 1 << 20) == cudaSuccess) cudaFree(memory);
      torch::empty({1 << 20}, torch::dtype(torch::kFloat32).device(kCard)).zero_();
    }
  });
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, 160, 96, 2);
  std::vector<std::string> found;
  for (int i = 0; i < 10; ++i) {
    Restorer restorer(compact_for_lanes(), NetworkSpec{}, {.device = kCard});
    found.push_back(restored_frame(restorer, clip[0], 0));
  }
  over = true;
  other.join();
  for (const std::string& picture : found) EXPECT_TRUE(picture == found.front());
}

std::int64_t used_bytes() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<std::int64_t>(total - free);
}

TEST_F(RestorerLanesGpuTest, KeepsItsBudget) {
  {  // libraries and kernels that are loaded once
    Restorer first(compact_for_lanes(64, 16), NetworkSpec{}, {.device = kCard});
    restored_frame(first, clip_of_noise(kYuv420, 320, 240, 1)[0], 0);
  }
  struct Case {
    int width, height, budget_mb;
  };
  for (const auto& [width, height, budget_mb] :
       {Case{1920, 1080, 1000}, Case{1920, 1080, 4000}, Case{7680, 4320, 2048}}) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    const std::int64_t before = used_bytes();
    Restorer restorer(compact_for_lanes(64, 16), NetworkSpec{},
                      {.device = kCard, .overlap_px = 16, .vram_mb = budget_mb});
    const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, width, height, 1);
    const std::string picture = restored_frame(restorer, clip[0], 0);
    const std::int64_t used = used_bytes() - before;
    RecordProperty(fmt::format("mb_of_{}_at_{}", budget_mb, height), std::to_string(used >> 20));
    RecordProperty(fmt::format("plan_of_{}_at_{}", budget_mb, height), restorer.describe());
    EXPECT_LE(used, (std::int64_t{budget_mb} << 20) * 105 / 100) << restorer.describe();
  }
}

TEST_F(RestorerLanesGpuTest, KeptPartsAreInTheBudget) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, 960, 540, 3);
  const NetworkSpec tscunet{.arch = "tscunet", .scale = 1, .window = 5, .options = {{"blocks", "1"}}};
  {
    Restorer first = restorer_of_windows(tscunet, {.device = kCard});
    restored_window(first, clip, 0, true);
  }
  for (const int budget_mb : {3000, 6000, 12000}) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    const std::int64_t before = used_bytes();
    Restorer restorer = restorer_of_windows(tscunet, {.device = kCard, .vram_mb = budget_mb});
    for (std::size_t n = 0; n < clip.size(); ++n) restored_window(restorer, clip, n, true);
    const std::int64_t used = used_bytes() - before;
    RecordProperty(fmt::format("tscunet_mb_of_{}", budget_mb), std::to_string(used >> 20));
    RecordProperty(fmt::format("tscunet_plan_of_{}", budget_mb), restorer.describe());
    EXPECT_LE(used, (std::int64_t{budget_mb} << 20) * 105 / 100) << restorer.describe();
  }
}

// In bands of rows, as where the output does not fit: the same picture.
TEST_F(RestorerLanesGpuTest, BandsGiveTheSamePicture) {
  const std::vector<OwnedPicture> clip = clip_of_noise(kYuv420, 1280, 960, 1);
  const RestoreOptions options{.device = kCard, .tile_px = 128, .overlap_px = 16};
  Restorer roomy(compact_for_lanes(), NetworkSpec{}, options);
  RestoreOptions narrow = options;
  narrow.vram_mb = 40;
  narrow.streams = 1;
  Restorer bands(compact_for_lanes(), NetworkSpec{}, narrow);
  EXPECT_TRUE(restored_frame(bands, clip[0], 0) == restored_frame(roomy, clip[0], 0));
}

}  // namespace
}  // namespace reelgrad
