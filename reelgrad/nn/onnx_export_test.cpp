#include "reelgrad/nn/onnx_export.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/nn/recording.h"
#include "reelgrad/nn/small_networks.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using PictureFunction = std::function<torch::Tensor(const torch::Tensor&)>;

// A network that is one function, without weights that are known by name.
class FunctionNetwork : public Network {
 public:
  explicit FunctionNetwork(PictureFunction function) : function_(std::move(function)) {}
  torch::Tensor forward(torch::Tensor input) override { return function_(input); }
  NetworkInfo info() const override { return {}; }

 private:
  PictureFunction function_;
};

Model model_of(NetworkSpec spec) {
  Model model{.network = make_network(spec), .spec = std::move(spec)};
  model.network->eval();
  return model;
}

Model model_of(PictureFunction function) {
  return {.network = std::make_shared<FunctionNetwork>(std::move(function)), .spec = {.scale = 1}};
}

// Files for one run of onnx_reference.py.
class OnnxCases {
 public:
  void add(const std::string& name, const Model& model, const OnnxOptions& options) {
    const torch::NoGradGuard no_grad;
    const NetworkInfo info = model.network->info();
    model.network->eval();
    NamedTensors pictures;
    const std::vector<InputSize> sizes =
        options.size ? std::vector{*options.size} : std::vector<InputSize>{{16, 21}, {27, 18}, {24, 32}};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto fitting = [&](std::int64_t side) {
        return (side + info.size_multiple - 1) / info.size_multiple * info.size_multiple;
      };
      const torch::Tensor input =
          torch::rand({1, info.window * info.in_channels, fitting(sizes[i].height), fitting(sizes[i].width)});
      pictures.emplace_back(fmt::format("input{}", i), input);
      pictures.emplace_back(fmt::format("output{}", i), run_as_onnx(*model.network, input).contiguous().clone());
    }
    write_safetensors(folder_ / (name + ".safetensors"), pictures);
    const nlohmann::json wanted{{"opset", options.opset},
                                {"dynamic", !options.size},
                                {"type", options.half ? "tensor(float16)" : "tensor(float)"},
                                {"tolerance", options.half ? 2e-2 : 1e-4},
                                {"metadata", {{"arch", model.spec.arch}, {"scale", std::to_string(info.scale)}}}};
    folder_.write(name + ".json", wanted.dump());
    onnx::write_model(folder_ / (name + ".onnx"), to_onnx(model, options));
  }

  void expect_right() const {
    const ProcessResult result = run_process(
        {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/nn/onnx_reference.py", folder_.path().string()},
        std::chrono::minutes(4));
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }

 private:
  test::TemporaryFolder folder_;
};

NetworkSpec small_compact(int scale, NetworkColor color, const std::string& activation) {
  return {.scale = scale, .color = color, .options = {{"features", "12"}, {"convs", "3"}, {"activation", activation}}};
}

std::string text(const NetworkSpec& spec) {
  return fmt::format("{}-{}x{}", spec.options.at("activation"), spec.scale, channels(spec.color));
}

TEST(OnnxExport, CompactOfEveryKindIsOurs) {
  torch::manual_seed(1);
  OnnxCases cases;
  for (const char* activation : {"prelu", "relu", "leakyrelu"}) {
    for (int scale = 1; scale <= 4; ++scale) {
      const auto color = scale % 2 == 0 ? NetworkColor::rgb : NetworkColor::gray;
      const NetworkSpec spec = small_compact(scale, color, activation);
      cases.add(text(spec), model_of(spec), {});
    }
  }
  cases.expect_right();
}

TEST(OnnxExport, EveryOpsetStaticAndHalfIsOurs) {
  torch::manual_seed(1);
  const NetworkSpec spec = small_compact(2, NetworkColor::rgb, "prelu");
  OnnxCases cases;
  for (int opset = onnx::kOldestOpset; opset <= onnx::kNewestOpset; ++opset) {
    for (const bool half : {false, true}) {
      cases.add(fmt::format("dynamic-{}-{}", opset, half), model_of(spec), {.opset = opset, .half = half});
      cases.add(fmt::format("static-{}-{}", opset, half), model_of(spec),
                {.opset = opset, .half = half, .size = InputSize{20, 33}});
    }
  }
  cases.expect_right();
}

Model small_model(const Architecture& row) {
  return model_of(test::small_spec(row, find_architecture(row.name)->scales.back()));
}

class OnnxArchitectureTest : public testing::TestWithParam<const Architecture*> {};

// For any size if it can be, and for one.
TEST_P(OnnxArchitectureTest, IsOurs) {
  torch::manual_seed(1);
  OnnxCases cases;
  const std::int64_t multiple = small_model(*GetParam()).network->info().size_multiple;
  const std::int64_t least = std::max<std::int64_t>(16 / multiple, 1) * multiple;
  const InputSize size{least + multiple, least + 3 * multiple};
  cases.add("static", small_model(*GetParam()), {.opset = onnx::kNewestOpset, .size = size});
  // A CPU takes half a minute for half precision in the one network that cannot be made small.
  if (GetParam()->name != "tscunet") cases.add("half", small_model(*GetParam()), {.half = true, .size = size});
  try {
    cases.add("dynamic", small_model(*GetParam()), {});
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--size"));  // says what to do instead
    std::cout << error.what() << "\n";
  }
  cases.expect_right();
}

INSTANTIATE_TEST_SUITE_P(Table, OnnxArchitectureTest, testing::ValuesIn(test::own_architectures()),
                         [](const auto& tested) { return std::string(tested.param->name); });

struct Function {
  const char* name;
  PictureFunction function;
};

torch::Tensor values(at::IntArrayRef shape) {
  return torch::linspace(-1, 1, c10::multiply_integers(shape)).sin().view(shape);
}

// [1, 3, H, W] -> [1, channels, H, W]
torch::Tensor widened(const torch::Tensor& x, std::int64_t channels) {
  return at::conv2d(x, values({channels, 3, 3, 3}), values({channels}), 1, 1);
}

// What networks of the community are made of.
std::vector<Function> functions() {
  namespace F = torch::nn::functional;
  return {
      {"silu", [](auto& x) { return at::silu(widened(x, 4)); }},
      {"mish", [](auto& x) { return at::mish(widened(x, 4)); }},
      {"gelu", [](auto& x) { return at::gelu(widened(x, 4)); }},
      {"gelu_tanh", [](auto& x) { return at::gelu(widened(x, 4), "tanh"); }},
      {"elementwise",
       [](auto& x) {
         return (x.sigmoid() * 2 - x.tanh() / 3 + 1 - (1 - x)).add(x.exp(), 0.5) + at::clamp(x, 0.2, 0.7) + x.rsqrt();
       }},
      {"product_sums",
       [](auto& x) {
         return at::addcmul(x, x, values({1, 3, 1, 1}), 0.5) + at::square(x) + x.pow(1.5);
       }},
      {"in_place",
       [](auto& x) {
         torch::Tensor y = widened(x, 4);
         const torch::Tensor before = y + 1;
         y.relu_().mul_(2);
         return y + before;
       }},
      {"hard",
       [](auto& x) { return at::hardsigmoid(x * 8 - 4) + at::hardswish(x) + at::relu6(x * 9) + at::elu(x - 0.5); }},
      {"selu", [](auto& x) { return at::selu(widened(x, 4)) + at::celu(widened(x, 4), 0.7); }},
      {"log_sigmoid", [](auto& x) { return at::log_sigmoid(widened(x, 4)); }},
      {"largest",
       [](auto& x) {
         const torch::Tensor y = widened(x, 4);
         return std::get<0>(at::max(y, 1, true)) + std::get<0>(at::min(y, 1, true)) + at::max(y, y * 0.5) + at::min(y) +
                std::get<0>(at::adaptive_max_pool2d(y, {1, 1}));
       }},
      {"where",
       [](auto& x) {
         const torch::Tensor y = widened(x, 3);
         return at::where(y > 0, y, y * 0.2) + at::where(y.lt(x), 1.0, x) + y.masked_fill(y >= 0.5, 0.5) * (x <= y);
       }},
      {"channel_shuffle", [](auto& x) { return at::channel_shuffle(widened(x, 6), 3) * widened(x, 6); }},
      {"nearest_exact",
       [](auto& x) {
         return at::_upsample_nearest_exact2d(x, {x.size(2) * 2, x.size(3) * 2}) + at::pixel_shuffle(widened(x, 12), 2);
       }},
      {"around",
       [](auto& x) {
         return at::pad(x, {1, 2, 3, 0}, "circular") + at::pad(x, {1, 2, 3, 0}, "replicate") +
                at::pad(x, {1, 2, 3, 0}, "reflect") + at::pad(x, {1, 2, 3, 0}, "constant", 0.3);
       }},
      {"groups",
       [](auto& x) {
         return at::conv2d(widened(x, 4), values({4, 1, 3, 3}), values({4}), 1, 2, 2, 4);
       }},
      {"strided",
       [](auto& x) {
         const torch::Tensor y = at::conv2d(at::reflection_pad2d(x, {2, 1, 1, 2}), values({4, 3, 3, 3}), {}, 1, 1);
         return at::conv_transpose2d(y, values({4, 3, 2, 2}), values({3}), 2);
       }},
      {"cat_split",
       [](auto& x) {
         const auto parts = widened(x, 6).chunk(2, 1);
         return at::cat({parts[1], parts[0] * parts[1], x, widened(x, 4).narrow(1, 1, 2)}, 1);
       }},
      {"unshuffle",
       [](auto& x) { return at::pixel_shuffle(at::pixel_unshuffle(at::pixel_shuffle(widened(x, 8), 2), 2) * 2, 2); }},
      {"nearest",
       [](auto& x) {
         return at::upsample_nearest2d(x, {x.size(2) * 2, x.size(3) * 2});
       }},
      {"bilinear",
       [](auto& x) {
         return F::interpolate(x, F::InterpolateFuncOptions()
                                      .scale_factor(std::vector<double>{2, 2})
                                      .mode(torch::kBilinear)
                                      .align_corners(false));
       }},
      {"bicubic",
       [](auto& x) {
         return at::upsample_bicubic2d(x, {x.size(2) * 3, x.size(3) * 3}, /*align_corners=*/false);
       }},
      {"corners",
       [](auto& x) {
         return at::upsample_bilinear2d(x, {x.size(2) * 2, x.size(3) * 2}, /*align_corners=*/true);
       }},
      {"pool",
       [](auto& x) {
         return at::avg_pool2d(at::pixel_shuffle(widened(x, 12), 2), 2) +
                at::max_pool2d(at::pixel_shuffle(widened(x, 12), 2), 2);
       }},
      {"attention_of_channels",
       [](auto& x) {
         return x * at::sigmoid(at::conv2d(at::adaptive_avg_pool2d(x, {1, 1}), values({3, 3, 1, 1}))) + x.mean() +
                x.amax({2, 3}, true);
       }},
      {"layer_norm",
       [](auto& x) {
         const torch::Tensor rows = widened(x, 8).permute({0, 2, 3, 1});
         return at::layer_norm(rows, {8}, values({8}), values({8})).permute({0, 3, 1, 2});
       }},
      {"group_norm", [](auto& x) { return at::group_norm(widened(x, 8), 4, values({8}), values({8})); }},
      {"instance_norm", [](auto& x) { return at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); }},
      {"batch_norm",
       [](auto& x) {
         return at::batch_norm(x, values({3}), values({3}), values({3}), values({3}).square() + 0.1, false, 0.1, 1e-5,
                               false);
       }},
      {"var_mean",
       [](auto& x) {
         const auto [variance, mean] = at::var_mean(x, {1}, /*unbiased=*/false, /*keepdim=*/true);
         return (x - mean) * (variance + 1e-2).rsqrt() + x.var({1}, /*unbiased=*/true, /*keepdim=*/true);
       }},
      {"linear",
       [](auto& x) {
         const torch::Tensor rows = x.permute({0, 2, 3, 1}).reshape({1, x.size(2) * x.size(3), 3});
         return at::linear(rows, values({5, 3}), values({5})).transpose(1, 2).view({1, 5, x.size(2), x.size(3)});
       }},
      {"self_attention",
       [](auto& x) {
         const torch::Tensor tokens = widened(x, 8).flatten(2).view({1, 2, 4, -1}).transpose(-2, -1);
         const torch::Tensor shares = at::softmax(at::matmul(tokens, tokens.transpose(-2, -1)), -1);
         return at::matmul(shares, tokens).transpose(-2, -1).reshape({1, 8, x.size(2), x.size(3)});
       }},
      {"scaled_dot_product",
       [](auto& x) {
         const torch::Tensor tokens = widened(x, 8).flatten(2).transpose(1, 2).unsqueeze(1);
         return at::scaled_dot_product_attention(tokens, tokens, tokens)
             .squeeze(1)
             .transpose(1, 2)
             .view({1, 8, x.size(2), x.size(3)});
       }},
      {"roll",
       [](auto& x) {
         return at::roll(at::roll(x, {2, -3}, {2, 3}), 1, 1) + x.flip({2, 3});
       }},
      {"pads",
       [](auto& x) {
         return at::constant_pad_nd(x, {1, 2, 3, 4}, 0.5) + at::replication_pad2d(x, {1, 2, 3, 4}) +
                F::pad(x, F::PadFuncOptions({1, 2, 3, 4}).mode(torch::kReflect));
       }},
      {"slices",
       [](auto& x) {
         const torch::Tensor larger = at::pixel_shuffle(widened(x, 12), 2).slice(2, 1, 2 * x.size(2), 2);
         return x.slice(2, 1, x.size(2) - 2) + x.select(1, -1).unsqueeze(1).slice(2, 3) +
                larger.slice(3, 0, std::numeric_limits<std::int64_t>::max(), 2).slice(2, 0, x.size(2) - 3);
       }},
      {"half_size",
       [](auto& x) {
         return x.repeat({1, 2, 1, 3}) + at::cat({x, x}, 1).expand({1, 6, -1, -1}).repeat({1, 1, 1, 3});
       }},
      {"noise_level",
       [](auto& x) {
         return at::cat({x, x.new_full({1, 1, x.size(2), x.size(3)}, 0.25)}, 1) + at::ones_like(x).mean();
       }},
      {"grid",
       [](auto& x) {
         const torch::Tensor columns = (at::arange(x.size(3), x.options()) + 0.25) * (2.0 / x.size(3)) - 1;
         const torch::Tensor rows = (at::arange(x.size(2), x.options()) + 0.75) * (2.0 / x.size(2)) - 1;
         const torch::Tensor across = columns.expand({x.size(2), x.size(3)});
         const torch::Tensor down = rows.unsqueeze(1).expand({x.size(2), x.size(3)});
         return at::grid_sampler(x, at::stack({across, down}, -1).unsqueeze(0), 0, 1, false);
       }},
      {"unbound",
       [](auto& x) {
         return at::stack(x.unbind(1), 1) + at::stack({x, x}, 2).mean({2});
       }},
      {"norm", [](auto& x) { return x / x.norm(2, {1}, true).clamp_min(1e-3) + at::lerp(x, x * 2, 0.3); }},
  };
}

TEST(OnnxExport, EveryOperationIsTorchsAtAnySize) {
  OnnxCases cases;
  for (const Function& row : functions()) {
    SCOPED_TRACE(row.name);
    for (const int opset : {onnx::kOldestOpset, onnx::kNewestOpset}) {
      EXPECT_NO_THROW(cases.add(fmt::format("{}-{}", row.name, opset), model_of(row.function), {.opset = opset}));
    }
  }
  cases.expect_right();
}

std::string error_of(const PictureFunction& function, const OnnxOptions& options = {}) {
  try {
    to_onnx(model_of(function), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(OnnxExport, NamesTheOperationThatItDoesNotKnow) {
  EXPECT_THAT(error_of([](const torch::Tensor& x) { return at::cumsum(x, 3) + 1; }), HasSubstr("cumsum"));
  // The one that the network calls, not what that is made of.
  EXPECT_THAT(error_of([](const torch::Tensor& x) { return at::fft_rfft2(x).abs(); }), HasSubstr("fft_rfft2"));
}

TEST(OnnxExport, NamesWhatWritesIntoAPartOfATensor) {
  const auto error = error_of([](const torch::Tensor& x) {
    torch::Tensor y = x * 2;
    y.narrow(1, 0, 1).copy_(x.narrow(1, 1, 1));
    return y + 1;
  });
  EXPECT_THAT(error, HasSubstr("copy_"));
}

// A window of 8, padded: the padding is no line over the sizes.
torch::Tensor padded_to_eight(const torch::Tensor& x) {
  const std::int64_t below = (8 - x.size(2) % 8) % 8, right = (8 - x.size(3) % 8) % 8;
  const torch::Tensor padded = at::reflection_pad2d(x, {0, right, 0, below});
  const torch::Tensor windows = padded.view({1, 3, padded.size(2) / 8, 8, padded.size(3) / 8, 8});
  return (windows - windows.mean({3, 5}, true)).view(padded.sizes()).slice(2, 0, x.size(2)).slice(3, 0, x.size(3));
}

TEST(OnnxExport, WhatBakesTheSizeInTakesOneSizeOnly) {
  EXPECT_THAT(error_of(padded_to_eight), AllOf(HasSubstr("reflection_pad2d"), HasSubstr("--size")));
  OnnxCases cases;
  cases.add("padded", model_of(padded_to_eight), {.size = InputSize{21, 30}});
  cases.add("fitting", model_of(padded_to_eight), {.size = InputSize{24, 32}});
  cases.expect_right();
}

TEST(OnnxExport, WeightsHaveTheirNames) {
  const Model model = model_of(small_compact(2, NetworkColor::rgb, "prelu"));
  const onnx::Model converted = to_onnx(model, {});
  std::vector<std::string> names;
  for (const onnx::Tensor& tensor : converted.initializers) names.push_back(tensor.name);
  for (const auto& [name, tensor] : state_dict(*model.network)) EXPECT_THAT(names, testing::Contains(name));
  EXPECT_EQ(converted.metadata.at("color"), "rgb");
  EXPECT_EQ(converted.metadata.at("arch"), "compact");
  EXPECT_EQ(converted.metadata.at("scale"), "2");
}

TEST(OnnxExport, ASizeThatTheNetworkDoesNotTakeIsRefused) {
  class Folded : public FunctionNetwork {
   public:
    Folded()
        : FunctionNetwork([](const torch::Tensor& x) { return at::pixel_shuffle(at::pixel_unshuffle(x, 4), 4); }) {}
    NetworkInfo info() const override { return {.size_multiple = 4}; }
  };
  const Model model{.network = std::make_shared<Folded>(), .spec = {.scale = 1}};
  try {
    to_onnx(model, {.size = InputSize{10, 8}});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("multiples of 4"));
  }
}

// The bytes are not looked at: the file is refused before they are copied.
TEST(OnnxExport, MoreThanTwoGibibytesAreRefused) {
  test::TemporaryFolder folder;
  onnx::Model model;
  const std::byte one{};
  for (const char* name : {"a", "b"}) {
    model.initializers.push_back({.name = name, .bytes = {&one, std::size_t{1} << 30}});
  }
  try {
    onnx::write_model(folder / "large.onnx", model);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("large.onnx"), HasSubstr("2 GiB")));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "large.onnx"));
}

TEST(OnnxExport, NumbersAreFittedAsFunctionsOfTheSize) {
  const std::vector<InputSize> sizes{{16, 20}, {17, 18}, {19, 21}};
  using Base = SizedNumber::Base;
  EXPECT_EQ(fit({5, 5, 5}, sizes, true), (SizedNumber{.factor = 5}));
  EXPECT_EQ(fit({34, 36, 40}, sizes, true), (SizedNumber{.base = Base::height, .factor = 2, .offset = 2}));
  EXPECT_EQ(fit({10, 9, 10.5}, sizes, true), (SizedNumber{.base = Base::width, .factor = 0.5}));
  EXPECT_EQ(fit({320, 306, 399}, sizes, true), (SizedNumber{.base = Base::area, .factor = 1}));
  EXPECT_EQ(fit({0, 7, 5}, sizes, true), std::nullopt);
  const auto reciprocal = fit({2.0 / 20, 2.0 / 18, 2.0 / 21}, sizes, false);
  ASSERT_TRUE(reciprocal);
  EXPECT_EQ(reciprocal->base, Base::per_width);
  EXPECT_NEAR(reciprocal->factor, 2, 1e-9);
}

}  // namespace
}  // namespace reelgrad
