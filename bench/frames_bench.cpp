// The frame path on a card: host frames to tensors, frames that VapourSynth made on the card, and the gather.
//   frames_bench [clip…]     Google Benchmark's options; clips (H.264) for the GPU frames
#include <benchmark/benchmark.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/frames/frame_pool.h"
#include "reelgrad/frames/frame_uploader.h"
#include "reelgrad/frames/gpu_plane_import.h"

namespace reelgrad {
namespace {

using Clock = std::chrono::steady_clock;

const torch::Device kCard(torch::kCUDA, 0);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void synchronize() {
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) fail(cudaGetErrorString(error));
}

VideoFormat yuv420(int bits) {
  return {ColorFamily::yuv, SampleType::integer, bits, 1, 1};
}
constexpr VideoFormat kRgb24{ColorFamily::rgb, SampleType::integer, 8, 0, 0};

// Random pictures, more of them than any cache holds.
std::vector<std::unique_ptr<OwnedPicture>> pictures(const VideoFormat& format, int width, int height, int count) {
  std::mt19937 random(1);
  std::vector<std::unique_ptr<OwnedPicture>> list;
  for (int i = 0; i < count; ++i) {
    list.push_back(std::make_unique<OwnedPicture>(format, width, height, ColorProps{}));
    const MutableFrameView view = list.back()->mutable_view();
    for (int p = 0; p < format.planes(); ++p) {
      const auto bytes = static_cast<std::size_t>(view.planes[p].stride_bytes) * format.plane_height(height, p);
      for (std::size_t at = 0; at + 4 <= bytes; at += 4) {
        const std::uint32_t value = random() & (format.bits == 10 ? 0x03ff03ffU : 0xffffffffU);
        std::memcpy(view.planes[p].data + at, &value, 4);
      }
    }
  }
  return list;
}

// Whole frames that lie in memory, to half tensors of R'G'B': what apply and the plugin do with each.
void host_frames(benchmark::State& state, VideoFormat format, int width, int height) {
  constexpr int kFrames = 1500;
  const int threads = static_cast<int>(state.range(0));
  const auto frames = pictures(format, width, height, 48);
  FrameUploader uploader(format, width, height, kCard, 8);
  const ColorSpec color{1, false, 0};
  const auto run = [&](int count) {
    std::atomic<int> next = 0;
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&] {
        const torch::NoGradGuard no_grad;
        for (int n; (n = next++) < count;) {
          uploader.to_tensor(frames[static_cast<std::size_t>(n) % frames.size()]->view(), color, NetworkColor::rgb,
                             torch::kHalf);
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    synchronize();
  };
  run(100);
  for (auto _ : state) {
    const auto begin = Clock::now();
    run(kFrames);
    state.SetIterationTime(seconds_since(begin));
  }
  state.SetItemsProcessed(state.iterations() * kFrames);
}

// One step's crops, batch 16, crop 64, scale 2, from pools on the card; time on the stream, launches in a graph.
void gather_batch(benchmark::State& state) {
  constexpr int kBatch = 16, kCrop = 64, kPool = 64, kLaunches = 50;
  std::mt19937 random(2);
  const auto fill = [&](FramePool& pool, int width, int height) {
    const auto frames = pictures(pool.format(), width, height, 4);
    for (int slot = 0; slot < kPool; ++slot) pool.store(slot, frames[static_cast<std::size_t>(slot) % 4]->view());
  };
  FramePool inputs(yuv420(8), 960, 540, kPool, FramePool::Place::device, kCard);
  FramePool targets(yuv420(8), 1920, 1080, kPool, FramePool::Place::device, kCard);
  fill(inputs, 960, 540);
  fill(targets, 1920, 1080);
  synchronize();

  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  const torch::Tensor input = torch::empty({kBatch, 3, kCrop, kCrop}, kCard);
  const torch::Tensor target = torch::empty({kBatch, 3, 2 * kCrop, 2 * kCrop}, kCard);
  const GatherSpec spec{.format = yuv420(8), .color = {1, false, 0}};
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeThreadLocal);
  for (int launch = 0; launch < kLaunches; ++launch) {
    std::vector<CropJob> jobs;
    for (int i = 0; i < kBatch; ++i) {
      const int slot = static_cast<int>(random() % kPool);
      const int x = static_cast<int>(random() % (960 - kCrop)), y = static_cast<int>(random() % (540 - kCrop));
      const Orientation turned{(i & 1) != 0, (i & 2) != 0, (i & 4) != 0};
      const auto job = [&](const FramePool& pool, int scale, const torch::Tensor& out) {
        const int side = kCrop * scale;
        jobs.push_back({pool.picture(slot),
                        x * scale,
                        y * scale,
                        side,
                        side,
                        turned,
                        {out.data_ptr<float>() + i * out.stride(0), planar_strides(side, side)}});
      };
      job(inputs, 1, input);
      job(targets, 2, target);
    }
    gather(spec, jobs, kCard);
  }
  cudaStreamEndCapture(stream.stream(), &graph);
  cudaGraphExec_t replay = nullptr;
  cudaGraphInstantiate(&replay, graph, 0);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaGraphLaunch(replay, stream.stream());
  for (auto _ : state) {
    cudaEventRecord(begin, stream.stream());
    cudaGraphLaunch(replay, stream.stream());
    cudaEventRecord(end, stream.stream());
    cudaEventSynchronize(end);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    state.SetIterationTime(milliseconds / 1000 / kLaunches);
  }
  synchronize();
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Asks a node for frames as vspipe does, and drops them.
class Drain {
 public:
  Drain(const Clip& clip, int frames) : impl_(clip.impl()), total_(frames) {
    for (int i = 0; i < std::min(frames, 32); ++i) ask();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == total_; });
  }

 private:
  void ask() {
    int n;
    {
      std::lock_guard lock(mutex_);
      if (asked_ == total_) return;
      n = asked_++;
    }
    impl_.core->api()->getFrameAsync(n, impl_.source.get(), on_frame, this);
  }
  static void VS_CC on_frame(void* user, const VSFrame* frame, int, VSNode*, const char*) {
    auto* self = static_cast<Drain*>(user);
    self->impl_.core->api()->freeFrame(frame);
    self->ask();
    std::lock_guard lock(self->mutex_);
    ++self->done_;
    self->changed_.notify_all();
  }

  const Clip::Impl& impl_;
  int total_, asked_ = 0, done_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// `streams` scripts at once, each decoding the clip on the card.
std::vector<Clip> decoding_clips(const std::string& file, int streams) {
  std::vector<Clip> clips;
  for (int i = 0; i < streams; ++i) {
    clips.push_back(*Script::open(file, {.card = card_of(kCard)}).output(0));
  }
  return clips;
}

void gpu_frames(benchmark::State& state, const std::string& file, bool ours) {
  std::vector<Clip> clips = decoding_clips(file, static_cast<int>(state.range(0)));
  if (!clips[0].frame_path().gpu) return state.SkipWithError(clips[0].frame_path().why.c_str());
  const CudaFrameTarget target(kCard);
  if (ours) {
    for (Clip& clip : clips) clip = clip.on_gpu(target);
  }
  const int frames = static_cast<int>(clips[0].info().frames);
  const auto read = [&](const Clip& clip) {
    if (!ours) return Drain(clip, frames).wait();
    FrameStream stream(clip, 0, frames);
    const c10::Stream consumer = c10::cuda::getCurrentCUDAStream();
    while (const auto frame = stream.next()) device_picture(*frame)->wait_on(consumer);
  };
  double cpu = 0, wall = 0;
  for (auto _ : state) {
    const double cpu_before = cpu_seconds();
    const auto begin = Clock::now();
    std::vector<std::thread> readers;
    for (const Clip& clip : clips) readers.emplace_back([&] { read(clip); });
    for (std::thread& reader : readers) reader.join();
    synchronize();
    const double seconds = seconds_since(begin);
    state.SetIterationTime(seconds);
    wall += seconds;
    cpu += cpu_seconds() - cpu_before;
  }
  state.SetItemsProcessed(state.iterations() * frames * state.range(0));
  state.counters["cores"] = cpu / wall / static_cast<double>(state.range(0));
}

// A whole picture's conversion as a restorer does it, from a clip's format to half and back; time on the stream.
void whole_picture(benchmark::State& state, bool back) {
  constexpr int kLaunches = 50;
  const int width = back ? 3840 : 1920, height = back ? 2160 : 1080;
  FramePool pool(yuv420(8), width, height, 1, FramePool::Place::device, kCard);
  pool.store(0, pictures(yuv420(8), width, height, 1).front()->view());
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  const torch::Tensor image = torch::rand({3, height, width}, torch::dtype(torch::kHalf).device(kCard));
  const PictureRef picture = pool.picture(0);
  MutablePictureRef out{.width = width, .height = height};
  for (int p = 0; p < 3; ++p) {
    out.plane[p] = const_cast<std::byte*>(picture.plane[p]);
    out.stride_bytes[p] = picture.stride_bytes[p];
  }
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  const CropJob job{picture, 0, 0, width, height, {}, {image.mutable_data_ptr(), planar_strides(width, height)}};
  const GatherSpec to{.format = yuv420(8), .color = {1, false, 0}, .element = ElementType::f16};
  const ScatterSpec from{.format = yuv420(8), .color = {1, false, 0}, .element = ElementType::f16};
  for (auto _ : state) {
    cudaEventRecord(begin, stream.stream());
    for (int launch = 0; launch < kLaunches; ++launch) {
      if (back)
        cuda::scatter(from, {image.const_data_ptr(), planar_strides(width, height)}, out, stream.stream());
      else
        cuda::gather(to, std::array{job}, stream.stream());
    }
    cudaEventRecord(end, stream.stream());
    cudaEventSynchronize(end);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    state.SetIterationTime(milliseconds / 1e3 / kLaunches);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

void add_benchmarks(const std::vector<std::string>& clips) {
  const auto host = [](const char* name, VideoFormat format, int width, int height) {
    benchmark::RegisterBenchmark((std::string("host_frames/") + name).c_str(),
                                 [=](benchmark::State& state) { host_frames(state, format, width, height); })
        ->Arg(1)
        ->Arg(2)
        ->Arg(4)
        ->Arg(8)
        ->UseManualTime()
        ->Iterations(3)
        ->Unit(benchmark::kMillisecond);
  };
  host("yuv420p8_1080p", yuv420(8), 1920, 1080);
  host("rgb24_1080p", kRgb24, 1920, 1080);
  host("yuv420p16_1080p", yuv420(16), 1920, 1080);
  host("yuv420p10_2160p", yuv420(10), 3840, 2160);
  benchmark::RegisterBenchmark("gather/batch16_crop64_x2", gather_batch)
      ->UseManualTime()
      ->Iterations(50)
      ->Unit(benchmark::kMicrosecond);
  for (const bool back : {false, true}) {
    benchmark::RegisterBenchmark(back ? "scatter/2160p_yuv420p8" : "gather/1080p_yuv420p8",
                                 [=](benchmark::State& state) { whole_picture(state, back); })
        ->UseManualTime()
        ->Iterations(20)
        ->Unit(benchmark::kMicrosecond);
  }
  for (const std::string& clip : clips) {
    for (const bool ours : {false, true}) {
      benchmark::RegisterBenchmark((std::string("gpu_frames/") + (ours ? "into_cuda" : "vapoursynth_alone")).c_str(),
                                   [=](benchmark::State& state) { gpu_frames(state, clip, ours); })
          ->Arg(1)
          ->Arg(4)
          ->Arg(7)
          ->UseManualTime()
          ->Iterations(2)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace reelgrad

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (!torch::cuda::is_available()) {
    std::fprintf(stderr, "frames_bench: no CUDA card\n");
    return 1;
  }
  reelgrad::add_benchmarks({argv + 1, argv + argc});
  benchmark::RunSpecifiedBenchmarks();
}
