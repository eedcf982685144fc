// What training and restoring rest on, once each on the card: a product of half-precision matrices, a convolution of
// pictures whose channels lie together, and a gradient. Inputs are small whole numbers, whose products and sums half
// precision holds exactly: a right result is known without a bound.
#include "reelgrad/engine/card_trial.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/cudnn_convolution.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/frames/gpu_plane_import.h"

namespace reelgrad {
namespace {

constexpr std::int64_t kMatrix = 4096;
constexpr std::int64_t kPictures = 8, kChannels = 256, kSide = 64, kKernel = 3;
constexpr std::int64_t kChecked = 16;  // rows, columns and pixels a side that are compared
constexpr int kWarmUps = 3;
constexpr double kMeasuredSeconds = 0.25;
constexpr int kMostRuns = 500;
// cuDNN may take a transform (Winograd) that is not exact; wrong ones are off by the sums' own size.
constexpr double kConvolutionBound = 0.02;
constexpr double kGradientBound = 1e-4;  // float sums of 64 products

torch::Device card_named(const std::string& uuid) {
  const std::optional<CardId> wanted = parse_card(uuid);
  for (int index = 0; wanted && index < static_cast<int>(torch::cuda::device_count()); ++index) {
    const torch::Device device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
    if (card_of(device) == wanted) return device;
  }
  throw Error(ErrorKind::no_device, fmt::format("PyTorch shows no card {}", uuid));
}

// Whole numbers from -most to most.
torch::Tensor whole_numbers(torch::IntArrayRef shape, int most, torch::Device device) {
  return torch::randint(-most, most + 1, shape, torch::dtype(torch::kHalf).device(device));
}

// Seconds that `work` takes on the card, on average.
double seconds_of(const std::function<void()>& work) {
  for (int i = 0; i < kWarmUps; ++i) work();
  torch::cuda::synchronize();
  const auto timed = [&](int runs) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    for (int i = 0; i < runs; ++i) work();
    end.record();
    end.synchronize();
    return begin.elapsed_time(end) / 1e3;
  };
  const double once = std::max(timed(1), 1e-6);
  const int runs = static_cast<int>(std::clamp(kMeasuredSeconds / once, 1.0, double{kMostRuns}));
  return timed(runs) / runs;
}

double matmul_tflops(torch::Device device) {
  const torch::Tensor left = whole_numbers({kMatrix, kMatrix}, 2, device);
  const torch::Tensor right = whole_numbers({kMatrix, kMatrix}, 2, device);
  torch::Tensor product = torch::empty_like(left);
  const double seconds = seconds_of([&] { torch::matmul_out(product, left, right); });
  const auto part = [](const torch::Tensor& whole, int dim) {
    return whole.narrow(dim, kMatrix - kChecked, kChecked).cpu().to(torch::kFloat);
  };
  const torch::Tensor expected = torch::matmul(part(left, 0), part(right, 1));
  if (!torch::equal(part(product.narrow(0, kMatrix - kChecked, kChecked), 1), expected))
    fail("a product of half-precision matrices is wrong");
  return 2.0 * kMatrix * kMatrix * kMatrix / seconds / 1e12;
}

double convolution_tflops(torch::Device device) {
  const torch::Tensor pictures =
      whole_numbers({kPictures, kChannels, kSide, kSide}, 1, device).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor weights =
      whole_numbers({kChannels, kChannels, kKernel, kKernel}, 1, device).contiguous(torch::MemoryFormat::ChannelsLast);
  torch::Tensor result;
  const double seconds = seconds_of([&] {
    result = at::cudnn_convolution(pictures, weights, /*padding=*/{1, 1}, /*stride=*/{1, 1}, /*dilation=*/{1, 1},
                                   /*groups=*/1, /*benchmark=*/false, /*deterministic=*/false, /*allow_tf32=*/false);
  });
  // The first pixels away from the border, of the last picture.
  const auto corner = [](const torch::Tensor& whole, std::int64_t first, std::int64_t side) {
    return whole.narrow(0, kPictures - 1, 1).narrow(2, first, side).narrow(3, first, side).cpu().to(torch::kFloat);
  };
  const torch::Tensor expected =
      torch::conv2d(corner(pictures, 0, kChecked + kKernel - 1), weights.cpu().to(torch::kFloat));
  const double error = (corner(result, 1, kChecked) - expected).abs().max().item<double>();
  if (!(error <= kConvolutionBound * expected.abs().max().item<double>()))
    fail(fmt::format("a half-precision convolution is off by {:g}", error));
  return 2.0 * kPictures * kSide * kSide * kChannels * kChannels * kKernel * kKernel / seconds / 1e12;
}

// One step of least squares, whose gradient is known: of |Xw - y|²/2 it is Xᵀ(Xw - y).
void check_gradient(torch::Device device) {
  const torch::Tensor inputs = torch::randn({64, 16}, device), targets = torch::randn({64}, device);
  const torch::Tensor weights = torch::randn({16}, device).requires_grad_();
  const torch::Tensor before = weights.detach().cpu().to(torch::kDouble);
  constexpr double kRate = 0.01;
  torch::optim::SGD optimizer({weights}, torch::optim::SGDOptions(kRate));
  (0.5 * (inputs.matmul(weights) - targets).square().sum()).backward();
  optimizer.step();
  const torch::Tensor x = inputs.cpu().to(torch::kDouble), y = targets.cpu().to(torch::kDouble);
  const torch::Tensor expected = before - kRate * x.t().matmul(x.matmul(before) - y);
  const torch::Tensor after = weights.detach().cpu().to(torch::kDouble);
  if (!torch::allclose(after, expected, kGradientBound, kGradientBound)) fail("a step of training is wrong");
}

}  // namespace

TrialFigures try_card(const std::string& uuid) {
  const torch::Device device = card_named(uuid);
  const c10::cuda::CUDAGuard guard(device);
  check_gradient(device);
  const torch::NoGradGuard no_gradients;
  return {.half_matmul_tflops = matmul_tflops(device), .half_convolution_tflops = convolution_tflops(device)};
}

}  // namespace reelgrad
