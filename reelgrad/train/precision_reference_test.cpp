// Mixed precision and TF32 compared with PyTorch in Python. The programs are part of this file, so that a machine which
// has only the binaries and a Python with PyTorch can run them too.
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

std::string python(const char* program, const std::vector<std::string>& arguments) {
  const char* interpreter = std::filesystem::exists(REELGRAD_TEST_PYTHON) ? REELGRAD_TEST_PYTHON : "python3";
  std::vector<std::string> argv{interpreter, "-c", program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return test::output_of(argv);
}

// --- Autocast: which type each operation works in ---

// The program's tensors and ours: f in float32, h in the half type, as it comes out of a convolution.
constexpr const char* kAutocastProgram = R"(
import json, sys, warnings
import torch
from torch.nn import functional as F
warnings.simplefilter("ignore")
device, half = sys.argv[1], getattr(torch, sys.argv[2])
def ones(*sizes):
    return torch.ones(sizes, device=device)
f, f3, f1, row = ones(2, 4, 6, 6), ones(2, 6, 6), ones(4), ones(2, 6)
h = f.to(half)
w3, w1, square = ones(4, 4, 3, 3), ones(4), ones(6, 6)
ops = {
    "conv2d": lambda: F.conv2d(f, w3),
    "conv1d": lambda: F.conv1d(f3, ones(2, 6, 3)),
    "conv3d": lambda: F.conv3d(f.unsqueeze(0), ones(3, 2, 1, 3, 3)),
    "conv_transpose2d": lambda: F.conv_transpose2d(f, w3),
    "linear": lambda: F.linear(row, square, ones(6)),
    "matmul": lambda: torch.matmul(f3, f3),
    "mm": lambda: torch.mm(row, square),
    "bmm": lambda: torch.bmm(f3, f3),
    "addmm": lambda: torch.addmm(ones(6), row, square),
    "baddbmm": lambda: torch.baddbmm(f3, f3, f3),
    "einsum": lambda: torch.einsum("bij,bjk->bik", f3, f3),
    "attention": lambda: F.scaled_dot_product_attention(f, f, f),
    "layer_norm": lambda: F.layer_norm(h, [6], ones(6), ones(6)),
    "group_norm": lambda: F.group_norm(h, 2, w1, w1),
    "batch_norm": lambda: F.batch_norm(h, None, None, w1, w1, True),
    "softmax": lambda: F.softmax(h, 1),
    "log_softmax": lambda: F.log_softmax(h, 1),
    "sum": lambda: h.sum(),
    "mean": lambda: h.mean(),
    "cumsum": lambda: h.cumsum(1),
    "prod": lambda: h.prod(),
    "exp": lambda: h.exp(),
    "log": lambda: h.log(),
    "log1p": lambda: h.log1p(),
    "pow": lambda: h.pow(1.5),
    "rsqrt": lambda: h.rsqrt(),
    "reciprocal": lambda: h.reciprocal(),
    "norm": lambda: h.norm(),
    "l1_loss": lambda: F.l1_loss(h, h),
    "mse_loss": lambda: F.mse_loss(h, h),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(h, h),
    "huber_loss": lambda: F.huber_loss(h, h),
    "bce_with_logits": lambda: F.binary_cross_entropy_with_logits(h, h),
    "cosine_similarity": lambda: F.cosine_similarity(h, h),
    "prelu": lambda: F.prelu(h, w1),
    "relu": lambda: F.relu(h),
    "leaky_relu": lambda: F.leaky_relu(h, 0.1),
    "gelu": lambda: F.gelu(h),
    "silu": lambda: F.silu(h),
    "sigmoid": lambda: torch.sigmoid(h),
    "softplus": lambda: F.softplus(h),
    "pixel_shuffle": lambda: F.pixel_shuffle(h, 2),
    "pixel_unshuffle": lambda: F.pixel_unshuffle(h, 2),
    "nearest": lambda: F.interpolate(h, scale_factor=2, mode="nearest"),
    "bilinear": lambda: F.interpolate(h, scale_factor=2, mode="bilinear"),
    "bicubic": lambda: F.interpolate(h, scale_factor=2, mode="bicubic"),
    "avg_pool2d": lambda: F.avg_pool2d(h, 2),
    "max_pool2d": lambda: F.max_pool2d(h, 2),
    "reflection_pad2d": lambda: F.pad(h, (1, 1, 1, 1), mode="reflect"),
    "grid_sample": lambda: F.grid_sample(h, ones(2, 3, 3, 2), align_corners=False),
    "cat": lambda: torch.cat([h, f]),
    "stack": lambda: torch.stack([h, f]),
    "add": lambda: h + f,
    "mul": lambda: h * 2.0,
    "addcmul": lambda: torch.addcmul(f, h, h),
    "addcdiv": lambda: torch.addcdiv(f, h, h),
    "atan2": lambda: torch.atan2(h, f),
    "dot": lambda: torch.dot(f1, f1.to(half)),
    "cross": lambda: torch.cross(ones(2, 3).to(half), ones(2, 3), 1),
    "bilinear_form": lambda: F.bilinear(row, row, ones(3, 6, 6)),
    "clamp": lambda: h.clamp(0, 1),
    "sqrt": lambda: h.sqrt(),
    "lerp": lambda: torch.lerp(h, h, 0.5),
}
def dtype_of(op):
    try:
        return str(op().dtype).removeprefix("torch.")
    except RuntimeError:
        return "refused"
with torch.autocast(device, half), torch.no_grad():
    print(json.dumps({name: dtype_of(op) for name, op in ops.items()}))
)";

using Operation = std::function<torch::Tensor()>;

std::map<std::string, Operation> operations(torch::Device device, torch::ScalarType half) {
  const auto ones = [=](at::IntArrayRef sizes) { return torch::ones(sizes, device); };
  const torch::Tensor f = ones({2, 4, 6, 6}), f3 = ones({2, 6, 6}), f1 = ones({4}), row = ones({2, 6});
  const torch::Tensor h = f.to(half), w3 = ones({4, 4, 3, 3}), w1 = ones({4}), square = ones({6, 6}), six = ones({6});
  return {
      {"conv2d", [=] { return at::conv2d(f, w3); }},
      {"conv1d",
       [=] {
         return at::conv1d(f3, ones({2, 6, 3}));
       }},
      {"conv3d",
       [=] {
         return at::conv3d(f.unsqueeze(0), ones({3, 2, 1, 3, 3}));
       }},
      {"conv_transpose2d", [=] { return at::conv_transpose2d(f, w3); }},
      {"linear", [=] { return at::linear(row, square, six); }},
      {"matmul", [=] { return at::matmul(f3, f3); }},
      {"mm", [=] { return at::mm(row, square); }},
      {"bmm", [=] { return at::bmm(f3, f3); }},
      {"addmm", [=] { return at::addmm(six, row, square); }},
      {"baddbmm", [=] { return at::baddbmm(f3, f3, f3); }},
      {"einsum",
       [=] {
         return at::einsum("bij,bjk->bik", {f3, f3});
       }},
      {"attention", [=] { return at::scaled_dot_product_attention(f, f, f); }},
      {"layer_norm", [=] { return at::layer_norm(h, {6}, six, six); }},
      {"group_norm", [=] { return at::group_norm(h, 2, w1, w1); }},
      {"batch_norm", [=] { return at::batch_norm(h, w1, w1, {}, {}, true, 0.1, 1e-5, true); }},
      {"softmax", [=] { return at::softmax(h, 1); }},
      {"log_softmax", [=] { return at::log_softmax(h, 1); }},
      {"sum", [=] { return h.sum(); }},
      {"mean", [=] { return h.mean(); }},
      {"cumsum", [=] { return h.cumsum(1); }},
      {"prod", [=] { return h.prod(); }},
      {"exp", [=] { return h.exp(); }},
      {"log", [=] { return h.log(); }},
      {"log1p", [=] { return h.log1p(); }},
      {"pow", [=] { return h.pow(1.5); }},
      {"rsqrt", [=] { return h.rsqrt(); }},
      {"reciprocal", [=] { return h.reciprocal(); }},
      {"norm", [=] { return h.norm(); }},
      {"l1_loss", [=] { return at::l1_loss(h, h); }},
      {"mse_loss", [=] { return at::mse_loss(h, h); }},
      {"smooth_l1_loss", [=] { return at::smooth_l1_loss(h, h); }},
      {"huber_loss", [=] { return at::huber_loss(h, h); }},
      {"bce_with_logits", [=] { return at::binary_cross_entropy_with_logits(h, h); }},
      {"cosine_similarity", [=] { return at::cosine_similarity(h, h); }},
      {"prelu", [=] { return at::prelu(h, w1); }},
      {"relu", [=] { return at::relu(h); }},
      {"leaky_relu", [=] { return at::leaky_relu(h, 0.1); }},
      {"gelu", [=] { return at::gelu(h); }},
      {"silu", [=] { return at::silu(h); }},
      {"sigmoid", [=] { return at::sigmoid(h); }},
      {"softplus", [=] { return at::softplus(h); }},
      {"pixel_shuffle", [=] { return at::pixel_shuffle(h, 2); }},
      {"pixel_unshuffle", [=] { return at::pixel_unshuffle(h, 2); }},
      {"nearest",
       [=] {
         return at::upsample_nearest2d(h, {12, 12});
       }},
      {"bilinear",
       [=] {
         return at::upsample_bilinear2d(h, {12, 12}, false);
       }},
      {"bicubic",
       [=] {
         return at::upsample_bicubic2d(h, {12, 12}, false);
       }},
      {"avg_pool2d", [=] { return at::avg_pool2d(h, 2); }},
      {"max_pool2d", [=] { return at::max_pool2d(h, 2); }},
      {"reflection_pad2d",
       [=] {
         return at::reflection_pad2d(h, {1, 1, 1, 1});
       }},
      {"grid_sample",
       [=] {
         return at::grid_sampler(h, ones({2, 3, 3, 2}), 0, 0, false);
       }},
      {"cat",
       [=] {
         return at::cat({h, f});
       }},
      {"stack",
       [=] {
         return at::stack({h, f});
       }},
      {"add", [=] { return h + f; }},
      {"mul", [=] { return h * 2.0; }},
      {"addcmul", [=] { return at::addcmul(f, h, h); }},
      {"addcdiv", [=] { return at::addcdiv(f, h, h); }},
      {"atan2", [=] { return at::atan2(h, f); }},
      {"dot", [=] { return at::dot(f1, f1.to(half)); }},
      {"cross",
       [=] {
         return at::cross(ones({2, 3}).to(half), ones({2, 3}), 1);
       }},
      {"bilinear_form",
       [=] {
         return at::bilinear(row, row, ones({3, 6, 6}));
       }},
      {"clamp", [=] { return h.clamp(0, 1); }},
      {"sqrt", [=] { return h.sqrt(); }},
      {"lerp", [=] { return at::lerp(h, h, 0.5); }},
  };
}

std::string dtype_of(const Operation& operation) {
  static const std::map<torch::ScalarType, std::string> kNames{
      {torch::kFloat32, "float32"}, {torch::kFloat16, "float16"}, {torch::kBFloat16, "bfloat16"}};
  try {
    return kNames.at(operation().scalar_type());
  } catch (const c10::Error&) {
    return "refused";
  }
}

void expect_the_types_of_pytorch(torch::Device device, Precision precision) {
  const torch::ScalarType half = precision == Precision::fp16 ? torch::kFloat16 : torch::kBFloat16;
  const std::string answer =
      python(kAutocastProgram, {device.is_cpu() ? "cpu" : "cuda", half == torch::kFloat16 ? "float16" : "bfloat16"});
  const std::map<std::string, std::string> expected = nlohmann::json::parse(answer);
  const torch::NoGradGuard no_grad;
  std::map<std::string, std::string> ours;
  const auto all = operations(device, half);
  {
    const AutocastGuard autocast(device, precision);
    for (const auto& [name, operation] : all) ours[name] = dtype_of(operation);
  }
  EXPECT_EQ(ours, expected);
  EXPECT_NE(ours["conv2d"], "float32");  // so that a guard which does nothing shows
  EXPECT_EQ(ours["mse_loss"], "float32");
}

TEST(AutocastReference, EveryOperationWorksInPyTorchsType) {
  expect_the_types_of_pytorch(torch::kCPU, Precision::bf16);
}

TEST(AutocastReferenceGpu, EveryOperationWorksInPyTorchsType) {
  if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    SCOPED_TRACE(to_string(precision));
    expect_the_types_of_pytorch({torch::kCUDA, 0}, precision);
  }
}

// --- TF32 ---

TEST(Tf32, SwitchesConvolutionsAndProductsAlike) {
  const at::Context& context = at::globalContext();
  for (const bool allowed : {false, true, false}) {
    apply_tf32(allowed);
    EXPECT_EQ(context.allowTF32CuDNN(), allowed);
    EXPECT_EQ(context.allowTF32CuBLAS(), allowed);
    EXPECT_EQ(context.allowTF32CuDNN(at::Float32Op::CONV), allowed);
  }
  apply_tf32(Config().precision.tf32);
}

// Prints, without TF32 and with it, a sum over the bits of a convolution and of a product, and their error.
constexpr const char* kTf32Program = R"(
import torch
x = (torch.arange(64 * 64 * 32) * 7919 % 4099).double() / 4099 - 0.5
def bits(tensor):
    return int(tensor.cpu().view(torch.int32).to(torch.int64).sum())
a, w = x.view(2, 64, 32, 32).float().cuda(), x[:64 * 64 * 9].view(64, 64, 3, 3).float().cuda()
m = x[:256 * 256].view(256, 256).float().cuda()
torch.backends.cudnn.deterministic = True
for allowed in (False, True):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    print(bits(torch.conv2d(a, w, padding=1)), bits(m @ m))
)";

std::int64_t bits(const torch::Tensor& tensor) {
  return tensor.cpu().contiguous().view(torch::kInt32).to(torch::kInt64).sum().item<std::int64_t>();
}

TEST(Tf32Gpu, HasTheEffectThatItHasInPyTorch) {
  if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  const torch::Tensor x =
      torch::arange(64 * 64 * 32, torch::kInt64).mul(7919).remainder(4099).to(torch::kFloat64).div(4099).sub(0.5);
  const torch::Tensor a = x.view({2, 64, 32, 32}), w = x.narrow(0, 0, 64 * 64 * 9).view({64, 64, 3, 3});
  const torch::Tensor m = x.narrow(0, 0, 256 * 256).view({256, 256});
  const auto on_card = [](const torch::Tensor& tensor) { return tensor.to(torch::kFloat32).cuda(); };
  const auto error = [](const torch::Tensor& ours, const torch::Tensor& exact) {
    return (ours.cpu().to(torch::kFloat64) - exact).abs().max().item<double>() / exact.abs().max().item<double>();
  };
  const torch::Tensor exact_conv = at::conv2d(a, w, {}, 1, at::IntArrayRef{1}), exact_product = m.mm(m);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  std::string ours;
  for (const bool allowed : {false, true}) {
    apply_tf32(allowed);
    const torch::Tensor conv = at::conv2d(on_card(a), on_card(w), {}, 1, at::IntArrayRef{1});
    const torch::Tensor product = on_card(m).mm(on_card(m));
    ours += fmt::format("{} {}\n", bits(conv), bits(product));
    // TF32 keeps 10 bits of a factor's mantissa, float32 23.
    for (const double rounding : {error(conv, exact_conv), error(product, exact_product)}) {
      EXPECT_TRUE(allowed ? rounding > 3e-5 && rounding < 1e-2 : rounding < 3e-5) << rounding;
    }
  }
  apply_determinism(false);
  apply_tf32(Config().precision.tf32);
  EXPECT_EQ(ours, python(kTf32Program, {}));
}

}  // namespace
}  // namespace reelgrad
