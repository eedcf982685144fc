// Convolutions with bias and PReLU as networks have them, beside torch's own operations and the rate of a large matrix
// product: on random values, for the cards are faster on zeros, and in a CUDA graph, so that launches do not count.
#include "reelgrad/engine/conv_timing.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/conv_act.h"
#include "reelgrad/train/captured_work.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace conv_timing {
namespace {

using Work = std::function<void()>;

constexpr int kRunsCaptured = 8, kReplays = 25;

struct Shape {
  int batch, height, width, in, out;
};

constexpr Shape kShapes[] = {{16, 64, 64, 64, 64}, {64, 128, 128, 64, 64}, {1, 1080, 1920, 64, 64}};
constexpr int kBatch = 8, kSide = 256;  // for the other channels
constexpr std::pair<int, int> kChannels[] = {{16, 16}, {24, 24},  {32, 32},   {48, 48},   {52, 52},
                                             {64, 64}, {96, 96},  {128, 128}, {160, 160}, {192, 192},
                                             {64, 32}, {64, 128}, {128, 64},  {192, 64}};
constexpr int kMatrix = 8192;

// Seconds on the card, the median of replays.
double seconds_of(const Work& work) {
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  for (int i = 0; i < 3; ++i) work();
  stream.synchronize();
  CapturedWork graph(at::cuda::graph_pool_handle(), [&] {
    for (int i = 0; i < kRunsCaptured; ++i) work();
  });
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    graph.replay();
    end.record();
    end.synchronize();
    times.push_back(begin.elapsed_time(end) / 1e3 / kRunsCaptured);
  }
  std::ranges::nth_element(times, times.begin() + kReplays / 2);
  return times[kReplays / 2];
}

class TimedConv {
 public:
  TimedConv(const Shape& shape, torch::ScalarType type, torch::Device device) : shape_(shape), type_(type) {
    const auto options = torch::dtype(type).device(device);
    const auto picture = [&](int channels) {
      return torch::randn({shape.batch, channels, shape.height, shape.width}, options)
          .contiguous(torch::MemoryFormat::ChannelsLast);
    };
    x_ = picture(shape.in);
    dy_ = picture(shape.out);
    weight_ = (torch::randn({shape.out, shape.in, 3, 3}, options) / (3 * std::sqrt(shape.in)))
                  .contiguous(torch::MemoryFormat::ChannelsLast);
    bias_ = torch::randn({shape.out}, options) * 0.1;
    slope_ = torch::rand({shape.out}, options) * 0.3;
  }

  ConvTiming forward() const {
    const torch::NoGradGuard no_grad;
    return timing(
        "forward", 1, [this] { ours(); }, [this] { torchs(); });
  }

  // Without activation, a fifth of it added to a picture: the end of a dense block.
  ConvTiming added() const {
    const torch::NoGradGuard no_grad;
    constexpr double kFactor = 0.2;
    return timing(
        "forward, added to a picture", 1, [&] { conv3x3_add(x_, weight_, bias_, dy_, kFactor); },
        [&] { at::add(dy_, at::conv2d(x_, weight_, bias_, 1, 1), kFactor); });
  }

  ConvTiming both_ways() {
    for (torch::Tensor* t : {&x_, &weight_, &bias_, &slope_}) t->set_requires_grad(true);
    const auto back = [this](const torch::Tensor& y) {
      torch::autograd::grad({y}, {x_, weight_, bias_, slope_}, {dy_});
    };
    return timing(
        "forward and backward", 3, [&] { back(ours()); }, [&] { back(torchs()); });
  }

 private:
  torch::Tensor ours() const { return conv3x3_act(x_, weight_, bias_, Activation::prelu, slope_); }
  torch::Tensor torchs() const { return at::prelu(at::conv2d(x_, weight_, bias_, 1, 1), slope_); }

  ConvTiming timing(const char* what, int convolutions, const Work& ours, const Work& torchs) const {
    const double pixels = static_cast<double>(shape_.batch) * shape_.height * shape_.width;
    const double teraflops = convolutions * pixels * 2 * 9 * shape_.in * shape_.out / 1e12;
    return {.name = fmt::format("conv {} to {}, {} × {} × {}, {}, {}", shape_.in, shape_.out, shape_.batch,
                                shape_.height, shape_.width, type_ == torch::kHalf ? "fp16" : "bf16", what),
            .ours_tflops = teraflops / seconds_of(ours),
            .torch_tflops = teraflops / seconds_of(torchs)};
  }

  Shape shape_;
  torch::ScalarType type_;
  torch::Tensor x_, dy_, weight_, bias_, slope_;
};

ConvTiming time_matrices(torch::ScalarType type, torch::Device device) {
  const torch::NoGradGuard no_grad;
  const auto options = torch::dtype(type).device(device);
  const torch::Tensor a = torch::randn({kMatrix, kMatrix}, options), b = torch::randn({kMatrix, kMatrix}, options);
  const double teraflops = 2.0 * kMatrix * kMatrix * kMatrix / 1e12;
  return {.name = fmt::format("matrix product {}³, bf16", kMatrix),
          .ours_tflops = 0,
          .torch_tflops = teraflops / seconds_of([&] { at::mm(a, b); })};
}

std::vector<ConvTiming> time_all(torch::Device device) {
  constexpr torch::ScalarType kType = torch::kBFloat16;
  std::vector<ConvTiming> timings{time_matrices(kType, device)};
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  for (const auto& [in, out] : kChannels) shapes.push_back({kBatch, kSide, kSide, in, out});
  for (const Shape& shape : shapes) {
    TimedConv conv(shape, kType, device);
    timings.push_back(conv.forward());
    if (shape.in == 192 || shape.in == 64) timings.push_back(conv.added());  // as dense blocks end
    timings.push_back(conv.both_ways());
  }
  return timings;
}

}  // namespace
}  // namespace conv_timing

std::vector<ConvTiming> time_convolutions(const std::string& name) {
  const torch::Device device = resolve_device(name);
  if (!device.is_cuda()) throw Error(ErrorKind::no_device, "bench conv needs a CUDA card");
  const c10::cuda::CUDAGuard guard(device);
  at::globalContext().setBenchmarkCuDNN(true);
  return conv_timing::time_all(device);
}

}  // namespace reelgrad
