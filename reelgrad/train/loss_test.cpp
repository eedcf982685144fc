#include "reelgrad/train/loss.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/ssim_loss.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

torch::Tensor uniform(torch::IntArrayRef sizes, std::uint64_t seed) {
  return torch::rand(sizes, at::detail::createCPUGenerator(seed), torch::kFloat64);
}

struct PicturePair {
  torch::Tensor prediction, target;

  PicturePair to(torch::Device device, torch::ScalarType type) const {
    return {prediction.to(device, type), target.to(device, type)};
  }
};

// Noise, and the same with a fifth of other noise mixed in.
PicturePair noise_pair(torch::IntArrayRef sizes) {
  const torch::Tensor target = uniform(sizes, 1);
  return {0.8 * target + 0.2 * uniform(sizes, 2), target};
}

LossConfig only(const std::function<void(LossConfig&)>& change) {
  LossConfig config;
  config.charbonnier = 0;
  change(config);
  return config;
}

struct LossCase {
  std::string name;
  LossConfig config;
  NetworkColor color = NetworkColor::rgb;
  std::string pictures = "small";  // a key of pictures_of_cases()
};

std::vector<LossCase> loss_cases() {
  std::vector<LossCase> cases{
      {"l1", only([](LossConfig& c) { c.l1 = 0.5; })},
      {"mse", only([](LossConfig& c) { c.mse = 2; })},
      {"charbonnier", only([](LossConfig& c) { c.charbonnier = 1, c.charbonnier_eps = 0.05; })},
      {"huber", only([](LossConfig& c) { c.huber = 1, c.huber_delta = 0.04; })},
      {"ssim", only([](LossConfig& c) { c.ssim = 1; })},
      {"ms_ssim", only([](LossConfig& c) { c.ms_ssim = 1; }), NetworkColor::rgb, "large"},
      {"fft", only([](LossConfig& c) { c.fft = 1; })},
      {"sobel", only([](LossConfig& c) { c.edge = 1; })},
      {"laplacian", only([](LossConfig& c) { c.edge = 1, c.edge_operator = "laplacian"; })},
      {"temporal", only([](LossConfig& c) { c.temporal = 3; }), NetworkColor::rgb, "frames"},
  };
  const auto every_pixel_loss = [](LossConfig& c) {
    c.l1 = 1, c.mse = 0.5, c.charbonnier = 0.25, c.huber = 2, c.huber_delta = 0.1;
    c.luma_weight = 2, c.chroma_weight = 0.3;
  };
  cases.push_back({"luma-rgb", only(every_pixel_loss)});
  cases.push_back({"luma-yuv", only(every_pixel_loss), NetworkColor::yuv444});
  cases.push_back({"ldl", only([](LossConfig& c) { c.ldl = 1; })});
  cases.push_back({"focal", only([](LossConfig& c) { c.focal_frequency = 2; })});
  cases.push_back({"focal-squared", only([](LossConfig& c) { c.focal_frequency = 1, c.focal_frequency.alpha = 2; })});
  cases.push_back({"color", only([](LossConfig& c) { c.color = 1, c.color.block_px = 3; })});
  for (const char* filter : {"haar", "db2", "sym7"}) {
    cases.push_back({filter, only([&](LossConfig& c) {
                       c.wavelet = 0.5, c.wavelet.filter = filter;
                       c.wavelet.ll = 0.1, c.wavelet.lh = 2, c.wavelet.hl = 3, c.wavelet.hh = 4;
                       if (c.wavelet.filter != "sym7") c.wavelet.levels = 2;
                     })});
  }
  const auto everything = [&](LossConfig& c) {
    every_pixel_loss(c);
    c.ssim = 0.1, c.fft = 0.2, c.edge = 0.3, c.temporal = 0.4;
  };
  cases.push_back({"everything", only(everything), NetworkColor::rgb, "frames"});
  return cases;
}

// Of networks that loss_reference.py writes into `folder`.
std::vector<LossCase> feature_cases(const std::filesystem::path& folder) {
  const auto perceptual = [&](const std::string& criterion, std::map<std::string, double> layers) {
    return only([&](LossConfig& c) {
      c.perceptual = 0.5, c.perceptual.weights = folder / "vgg19.pth", c.perceptual.criterion = criterion;
      if (!layers.empty()) c.perceptual.layers = layers;
    });
  };
  const auto lpips = [&](const char* net, const char* file) {
    return only([&](LossConfig& c) { c.lpips = 1, c.lpips.net = net, c.lpips.backbone = folder / file; });
  };
  const auto dists = only([&](LossConfig& c) { c.dists = 2, c.dists.backbone = folder / "vgg16.safetensors"; });
  return {{"perceptual", perceptual("l1", {}), NetworkColor::rgb, "small"},
          {"after-activation", perceptual("mse", {{"relu1_1", 0.25}, {"relu3_2", 2}, {"pool4", 0.5}})},
          {"gram", perceptual("gram", {{"conv2_1", 1}, {"relu2_2", 3}})},
          {"lpips-vgg", lpips("vgg", "vgg16.safetensors")},
          {"lpips-alex", lpips("alex", "alexnet.pth"), NetworkColor::rgb, "medium"},
          {"dists", dists}};
}

std::map<std::string, PicturePair> pictures_of_cases() {
  return {{"medium", noise_pair({2, 3, 35, 32})},
          {"small", noise_pair({2, 3, 20, 17})},
          {"large", noise_pair({2, 3, 176, 192})},
          {"frames", noise_pair({2, 2, 3, 14, 16})}};
}

// As PyWavelets prints them.
std::vector<double> low_filter_of(const std::string& name) {
  if (name == "haar") return {0.7071067811865476, 0.7071067811865476};
  if (name == "db2") return {-0.12940952255126037, 0.2241438680420134, 0.8365163037378079, 0.48296291314453416};
  return {0.002681814568257878,  -0.0010473848886829163, -0.01263630340325193, 0.03051551316596357, 0.0678926935013727,
          -0.049552834937127255, 0.017441255086855827,   0.5361019170917628,   0.767764317003164,   0.2886296317515146,
          -0.14004724044296152,  -0.10780823770381774,   0.004010244871533663, 0.010268176708511255};
}

nlohmann::json to_json(const LossCase& loss) {
  const LossConfig& c = loss.config;
  return {{"name", loss.name},
          {"pictures", loss.pictures},
          {"network_color", loss.color == NetworkColor::rgb ? "rgb" : "yuv444"},
          {"l1", c.l1.weight},
          {"mse", c.mse.weight},
          {"charbonnier", c.charbonnier.weight},
          {"charbonnier_eps", c.charbonnier_eps},
          {"huber", c.huber.weight},
          {"huber_delta", c.huber_delta},
          {"ssim", c.ssim.weight},
          {"ms_ssim", c.ms_ssim.weight},
          {"fft", c.fft.weight},
          {"edge", c.edge.weight},
          {"edge_operator", c.edge_operator},
          {"temporal", c.temporal.weight},
          {"luma_weight", c.luma_weight},
          {"chroma_weight", c.chroma_weight},
          {"ldl", c.ldl.weight},
          {"perceptual", c.perceptual.weight},
          {"perceptual_settings", {{"layers", c.perceptual.layers}, {"criterion", c.perceptual.criterion}}},
          {"lpips", c.lpips.weight},
          {"lpips_settings", {{"net", c.lpips.net}}},
          {"dists", c.dists.weight},
          {"focal_frequency", c.focal_frequency.weight},
          {"focal_alpha", c.focal_frequency.alpha},
          {"wavelet", c.wavelet.weight},
          {"wavelet_settings",
           {{"low", low_filter_of(c.wavelet.filter)},
            {"levels", c.wavelet.levels},
            {"ll", c.wavelet.ll},
            {"lh", c.wavelet.lh},
            {"hl", c.wavelet.hl},
            {"hh", c.wavelet.hh}}},
          {"color", c.color.weight},
          {"color_block", c.color.block_px}};
}

struct Evaluated {
  double total = 0;
  torch::Tensor terms, gradient;
};

Evaluated evaluate(const Loss& loss, const PicturePair& pictures) {
  const torch::Tensor prediction = pictures.prediction.detach().clone().requires_grad_();
  const LossValue value = loss(prediction, pictures.target);
  value.total.backward();
  return {value.total.item<double>(), value.terms, prediction.grad()};
}

double value_of(const LossConfig& config, const torch::Tensor& prediction, const torch::Tensor& target,
                NetworkColor color = NetworkColor::rgb) {
  return Loss(config, color)(prediction, target).total.item<double>();
}

// Of the largest.
double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  EXPECT_EQ(value.sizes(), expected.sizes());
  return ((value - expected).abs().max() / expected.abs().max()).item<double>();
}

// --- Against PyTorch and pytorch-msssim, in float64 ---

void expect_agrees(const LossCase& loss, const Evaluated& ours, const std::filesystem::path& folder, double bound) {
  SCOPED_TRACE(loss.name);
  const SafetensorsFile file = read_safetensors(folder / (loss.name + ".out.safetensors"));
  const std::map<std::string, torch::Tensor> expected(file.tensors.begin(), file.tensors.end());
  EXPECT_LE(relative_error(ours.terms, expected.at("terms")), bound / 10);
  EXPECT_LE(relative_error(ours.gradient, expected.at("gradient")), bound);
  EXPECT_NEAR(ours.total, expected.at("terms").sum().item<double>(), 1e-12 * std::max(1.0, std::abs(ours.total)));
}

// The same values and gradients, but for what the forward pass of the second time rounds alike.
void expect_checkpointing_changes_nothing(Loss& loss, const PicturePair& pictures, const Evaluated& plain) {
  loss.set_checkpointing(true);
  const Evaluated again = evaluate(loss, pictures);
  EXPECT_EQ(again.total, plain.total);
  EXPECT_TRUE(torch::equal(again.gradient, plain.gradient));
}

// In half precision of eight bits.
void expect_near_in_bf16(const LossCase& made, const PicturePair& pictures, const Evaluated& plain) {
  const Evaluated half =
      evaluate(Loss(made.config, made.color, Precision::bf16), pictures.to(torch::kCPU, torch::kFloat32));
  EXPECT_NEAR(half.total, plain.total, 0.03 * plain.total);
  const torch::Tensor a = half.gradient.flatten().to(torch::kFloat64), b = plain.gradient.flatten();
  EXPECT_GT((at::dot(a, b) / (a.norm() * b.norm())).item<double>(), 0.95);
}

TEST(LossReference, ValuesAndGradientsArePyTorchs) {
  at::set_num_threads(1);
  const test::TemporaryFolder folder;
  const std::vector<LossCase> of_features = feature_cases(folder.path());
  std::vector<LossCase> all = loss_cases();
  all.insert(all.end(), of_features.begin(), of_features.end());
  nlohmann::json request = nlohmann::json::array();
  for (const LossCase& loss : all) request.push_back(to_json(loss));
  std::ofstream(folder / "cases.json") << request;
  const auto pictures = pictures_of_cases();
  for (const auto& [name, pair] : pictures) {
    write_safetensors(folder / (name + ".safetensors"), {{"prediction", pair.prediction}, {"target", pair.target}});
  }
  const ProcessResult result = run_process(
      {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/train/loss_reference.py", folder.path().string()},
      std::chrono::minutes(2));
  ASSERT_EQ(result.exit_code, 0) << result.err;

  for (const LossCase& made : loss_cases()) {
    expect_agrees(made, evaluate(Loss(made.config, made.color), pictures.at(made.pictures)), folder.path(), 1e-11);
  }
  for (const LossCase& made : of_features) {
    SCOPED_TRACE(made.name);
    const PicturePair& pair = pictures.at(made.pictures);
    testing::internal::CaptureStderr();
    Loss loss(made.config, made.color);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, AllOf(HasSubstr("is not torchvision's"), HasSubstr("(its SHA-256 begins with ")));
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
    const Evaluated ours = evaluate(loss, pair);
    expect_agrees(made, ours, folder.path(), 1e-9);
    expect_checkpointing_changes_nothing(loss, pair, ours);
    if (made.name == "perceptual" || made.name == "dists") expect_near_in_bf16(made, pair, ours);
  }
}

// --- By hand ---

TEST(Loss, PixelLossesAreTheirFormulas) {
  const torch::Tensor a = torch::tensor({0.0, 0.5, 1.0, 0.25}, torch::kFloat64).reshape({1, 1, 2, 2});
  const torch::Tensor b = torch::tensor({0.5, 0.5, 0.0, 0.0}, torch::kFloat64).reshape({1, 1, 2, 2});
  EXPECT_NEAR(value_of({.l1 = 1, .charbonnier = 0}, a, b), 1.75 / 4, 1e-15);
  EXPECT_NEAR(value_of({.mse = 1, .charbonnier = 0}, a, b), 1.3125 / 4, 1e-15);
  EXPECT_NEAR(value_of({.charbonnier = 0, .huber = 1, .huber_delta = 0.5}, a, b),
              (0.125 + 0 + 0.5 * (1 - 0.25) + 0.03125) / 4, 1e-15);
  double expected = 0;
  for (const double d : {0.5, 0.0, 1.0, 0.25}) expected += std::sqrt(d * d + 0.01) / 4;
  EXPECT_NEAR(value_of({.charbonnier_eps = 0.1}, a, b), expected, 1e-15);
}

TEST(Loss, LumaAndChromaWeighTheirPlanes) {
  const LossConfig config = only([](LossConfig& c) { c.l1 = 1, c.luma_weight = 4, c.chroma_weight = 0.5; });
  const torch::Tensor zeros = torch::zeros({1, 3, 2, 2}, torch::kFloat64);
  // Gray has luma alone; blue: Y' 0.0722, Cb 0.5, Cr -0.0722 / 1.5748.
  EXPECT_NEAR(value_of(config, torch::ones_like(zeros), zeros), 4.0 / 3, 1e-14);
  const torch::Tensor blue = torch::tensor({0, 0, 1}, torch::kFloat64).view({1, 3, 1, 1}).expand({1, 3, 2, 2});
  EXPECT_NEAR(value_of(config, blue, zeros), (4 * 0.0722 + 0.5 * (0.5 + 0.0722 / 1.5748)) / 3, 1e-14);
  EXPECT_NEAR(value_of(config, blue, zeros, NetworkColor::yuv444), 0.5 / 3, 1e-14);
}

TEST(Loss, OneMinusSsimOfFlatPicturesIsTheirLuminances) {
  const LossConfig config = only([](LossConfig& c) { c.ssim = 1; });
  const torch::Tensor a = torch::full({1, 3, 12, 12}, 0.25, torch::kFloat64), b = torch::full_like(a, 0.75);
  EXPECT_NEAR(value_of(config, a, b), 1 - (2 * 0.25 * 0.75 + 1e-4) / (0.0625 + 0.5625 + 1e-4), 1e-12);
  EXPECT_NEAR(value_of(config, a, a), 0, 1e-12);
}

TEST(Loss, SpectrumOfOneBrightPixelIsFlat) {
  const LossConfig config = only([](LossConfig& c) { c.fft = 1; });
  const torch::Tensor zeros = torch::zeros({1, 1, 4, 4}, torch::kFloat64);
  torch::Tensor one = zeros.clone();
  one.index_put_({0, 0, 0, 0}, 1);  // every coefficient is (1, 0), over 4 by "ortho"
  EXPECT_NEAR(value_of(config, one, zeros), 0.25 / 2, 1e-15);
}

TEST(Loss, EdgesOfARampAndOfOneBrightPixel) {
  const torch::Tensor zeros = torch::zeros({1, 1, 5, 5}, torch::kFloat64);
  const torch::Tensor ramp = (torch::arange(5, torch::kFloat64) * 0.125).expand({1, 1, 5, 5});
  torch::Tensor dot = zeros.clone();
  dot.index_put_({0, 0, 2, 2}, 1);
  const LossConfig sobel = only([](LossConfig& c) { c.edge = 1; });
  EXPECT_NEAR(value_of(sobel, ramp, zeros), 0.125 / 2, 1e-15);  // all of it along x
  EXPECT_NEAR(value_of(sobel, dot, zeros), 8.0 / 8 / 9, 1e-15);
  const LossConfig laplacian = only([](LossConfig& c) { c.edge = 1, c.edge_operator = "laplacian"; });
  EXPECT_NEAR(value_of(laplacian, ramp, zeros), 0, 1e-15);
  EXPECT_NEAR(value_of(laplacian, dot, zeros), 8.0 / 9, 1e-15);
}

TEST(Loss, TemporalSeesFlickerAndNoConstantError) {
  const LossConfig config = only([](LossConfig& c) { c.temporal = 1; });
  const torch::Tensor target = uniform({2, 2, 3, 4, 4}, 1);
  EXPECT_NEAR(value_of(config, target + 0.25, target), 0, 1e-15);
  torch::Tensor flicker = target.clone();
  flicker.select(1, 1) += 0.25;
  EXPECT_NEAR(value_of(config, flicker, target), 0.25, 1e-15);
}

// Gives the middle frame of a window.
class MiddleOfThree : public Network {
 public:
  MiddleOfThree() { gain_ = register_parameter("gain", torch::ones({1}, torch::kFloat64)); }
  torch::Tensor forward(torch::Tensor input) override {
    seen = input;
    return gain_ * input.select(1, 1);
  }
  NetworkInfo info() const override { return {.scale = 1, .in_channels = 1, .out_channels = 1, .window = 3}; }
  torch::Tensor seen;

 private:
  torch::Tensor gain_;
};

TEST(NetworkLoss, RunsTheNetworkOnBothWindowsForATemporalTerm) {
  Config config;
  config.data.window = 3;
  config.loss = {.l1 = 1, .charbonnier = 0, .temporal = 0.5};
  MiddleOfThree network;
  // Frame t of the samples is t and 100 + t. The middle frames are 1 and 2; the targets of the second are 2 more.
  const torch::Tensor frames = (torch::arange(4, torch::kFloat64) + torch::tensor({0, 100}).view({2, 1}))
                                   .view({2, 4, 1, 1, 1})
                                   .expand({2, 4, 1, 4, 4});
  torch::Tensor targets = frames.narrow(1, 1, 2).clone();
  targets.select(1, 1) += 2;
  const LossValue value = NetworkLoss(config, network, Precision::fp32)({frames, targets});
  EXPECT_EQ(network.seen.sizes(), torch::IntArrayRef({4, 3, 1, 4, 4}));
  const torch::Tensor windows = torch::tensor({0, 1, 2, 1, 2, 3, 100, 101, 102, 101, 102, 103}, torch::kFloat64);
  EXPECT_TRUE(torch::equal(network.seen.select(-1, 0).select(-1, 0).flatten(), windows));
  EXPECT_TRUE(torch::allclose(value.terms, torch::tensor({1.0, 0.5 * 2}, torch::kFloat64)));
}

// --- Weights that change with the steps ---

TEST(Loss, AWeightBeginsAfterItsStartAndRises) {
  Loss loss(
      only([](LossConfig& c) { c.l1 = 1, c.mse = 2, c.mse.start = 3, c.mse.ramp = 4, c.huber = 5, c.huber.start = 2; }),
      NetworkColor::rgb);
  const torch::Tensor done = torch::zeros({}, torch::kFloat64), zeros = torch::zeros({1, 3, 4, 4}, torch::kFloat64);
  EXPECT_THROW(loss(zeros + 1, zeros), Error);
  loss.set_done_steps(done);
  const std::vector<double> mse{0, 0, 0, 0.5, 1, 1.5, 2, 2}, huber{0, 0, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5};
  for (std::size_t step = 0; step < mse.size(); ++step) {
    torch::Tensor(done).fill_(static_cast<double>(step));  // the loss reads it anew
    const torch::Tensor expected = torch::tensor({1.0, mse[step], huber[step]}, torch::kFloat64);
    EXPECT_TRUE(torch::equal(loss(zeros + 1, zeros).terms, expected)) << step;
  }
}

TEST(Loss, IsToldOfTheStepsThatTheUpdaterDid) {
  Config config = test::small_config();
  config.loss = {.l1 = 1, .mse = 1, .charbonnier = 0};
  config.loss.mse.start = 2;
  test::StepSetup setup(config, test::small_network(1), torch::kCPU);
  test::FixedBatches batches = test::smooth_batches(config);
  const auto weighted_mse = [&] { return setup.loss(batches.next(0, 0, 2)).terms[1].item<double>(); };
  EagerStep step(setup.ops, batches, {setup.samples(), 1});
  step.run(0);
  EXPECT_EQ(weighted_mse(), 0);
  step.run(1);
  EXPECT_GT(weighted_mse(), 0);
}

// --- Files of networks ---

TEST(FeatureLoss, TakesYuvAndGrayForRgb) {
  const torch::Tensor rgb = uniform({2, 3, 4, 5}, 1);
  const torch::Tensor y = 0.2126 * rgb.select(1, 0) + 0.7152 * rgb.select(1, 1) + 0.0722 * rgb.select(1, 2);
  const torch::Tensor cb = (rgb.select(1, 2) - y) / 1.8556 + 0.5, cr = (rgb.select(1, 0) - y) / 1.5748 + 0.5;
  EXPECT_TRUE(torch::allclose(as_rgb(torch::stack({y, cb, cr}, 1), NetworkColor::yuv444), rgb, 0, 1e-14));
  EXPECT_TRUE(torch::equal(as_rgb(y.unsqueeze(1), NetworkColor::gray), torch::stack({y, y, y}, 1)));
  EXPECT_TRUE(torch::equal(as_rgb(rgb, NetworkColor::rgb), rgb));
}

TEST(FeatureLoss, RefusesAFileOfAnotherNetwork) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const NamedTensors& tensors) -> std::string {
    write_safetensors(folder / "net.safetensors", tensors);
    try {
      Loss(only([&](LossConfig& c) { c.perceptual = 1, c.perceptual.weights = folder / "net.safetensors"; }),
           NetworkColor::rgb);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({{"conv.weight", torch::zeros({1})}}),
              HasSubstr("net.safetensors is not the network of torchvision's vgg19-dcbb9e9d.pth: features.0.weight is "
                        "missing"));
  EXPECT_THAT(refusal({{"features.0.weight", torch::zeros({64, 1, 3, 3})}}),
              HasSubstr("features.0.weight is [64, 1, 3, 3], needed: [64, 3, 3, 3]"));
}

TEST(FeatureLoss, FindsFilesOfInstalledPackages) {
  EXPECT_EQ(file_of_python_package("lpips/weights/v0.1/vgg.pth").filename(), "vgg.pth");
  EXPECT_EQ(file_of_python_package("DISTS_pytorch/no_such_file.pt", "weights.pt").filename(), "weights.pt");
  EXPECT_EQ(file_of_python_package("no_such_package/file"), "");
}

// --- Where there is no peer: against differences ---

void expect_gradient_of_differences(const Loss& loss, const PicturePair& pictures) {
  const torch::Tensor direction = uniform(pictures.prediction.sizes(), 3) - 0.5;
  const auto along = [&](double step) {
    return loss(pictures.prediction + step * direction, pictures.target).total.item<double>();
  };
  constexpr double kStep = 1e-5;
  const double expected = (along(kStep) - along(-kStep)) / (2 * kStep);
  const double gradient = (evaluate(loss, pictures).gradient * direction).sum().item<double>();
  EXPECT_NEAR(gradient, expected, 1e-6 * std::abs(expected));
}

TEST(Loss, MsSsimLeavesOutOddRowsAndColumns) {
  const Loss loss(only([](LossConfig& c) { c.ms_ssim = 1; }), NetworkColor::rgb);
  expect_gradient_of_differences(loss, noise_pair({1, 1, 177, 191}));
}

// Fine detail of the wrong sign has a negative factor, whose power is none, on the finest scale; where 2x2 pixels are
// averaged it is gone.
TEST(Loss, AScaleOfMsSsimAtItsEndLeavesTheOthersTheirGradient) {
  const Loss loss(only([](LossConfig& c) { c.ms_ssim = 1; }), NetworkColor::rgb);
  const torch::Tensor coarse = 0.2 * uniform({1, 1, 11, 11}, 1).repeat_interleave(16, 2).repeat_interleave(16, 3);
  const torch::Tensor signs = torch::tensor({1, -1, -1, 1}, torch::kFloat64).view({2, 2}).repeat({88, 88});
  const torch::Tensor detail =
      signs * (0.2 + 0.1 * uniform({1, 1, 88, 88}, 2).repeat_interleave(2, 2).repeat_interleave(2, 3));
  EXPECT_NEAR(evaluate(loss, {coarse - detail, coarse + detail}).total, 1 - std::pow(1e-4, 0.0448), 1e-9);
  const torch::Tensor brighter = 1.1 * coarse - detail;
  expect_gradient_of_differences(loss, {brighter, coarse + detail});
  EXPECT_GT(evaluate(loss, {brighter, coarse + detail}).gradient.abs().max().item<double>(), 0);
}

TEST(Loss, EveryTermHasTheGradientOfItsDifferences) {
  for (const LossCase& made : loss_cases()) {
    const LossConfig& c = made.config;
    if (!c.mse.on() && !c.charbonnier.on() && !c.huber.on() && !c.ssim.on()) continue;
    if (c.l1.on()) continue;  // |x| has kinks
    SCOPED_TRACE(made.name);
    expect_gradient_of_differences(Loss(made.config, made.color), pictures_of_cases().at(made.pictures));
  }
}

// --- Types, names, refusals ---

TEST(Loss, OfAHalfPredictionIsFloat32) {
  const torch::Tensor prediction = torch::full({1, 1, 64, 64}, 0.5, torch::kBFloat16);
  const LossValue loss = Loss({}, NetworkColor::gray)(prediction, torch::full({1, 1, 64, 64}, 0.5));
  EXPECT_EQ(loss.total.scalar_type(), torch::kFloat32);
  EXPECT_EQ(loss.terms.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(loss.total.item<double>(), 1e-6, 1e-9);  // eps^2 = 1e-12 is lost in a half type
}

TEST(Loss, TermsAreTheWeightedOnesInOrder) {
  const Loss loss({.l1 = 0.5, .mse = 4, .charbonnier = 0, .edge = 1}, NetworkColor::rgb);
  EXPECT_THAT(loss.names(), ElementsAre("l1", "mse", "edge"));
  const torch::Tensor zeros = torch::zeros({1, 3, 4, 4}, torch::kFloat64);
  const LossValue value = loss((zeros + 0.5).requires_grad_(), zeros);
  EXPECT_TRUE(torch::allclose(value.terms, torch::tensor({0.25, 1.0, 0.0}, torch::kFloat64)));
  EXPECT_FALSE(value.terms.requires_grad());
  EXPECT_TRUE(value.total.requires_grad());
  EXPECT_NEAR(value.total.item<double>(), 1.25, 1e-15);
}

std::string refusal(ErrorKind kind, const LossConfig& config, NetworkColor color, torch::IntArrayRef sizes) {
  try {
    Loss(config, color)(torch::zeros(sizes), torch::zeros(sizes));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "";
}

TEST(Loss, RefusesWhatCannotBe) {
  const auto usage = [](const LossConfig& config, torch::IntArrayRef sizes) {
    return refusal(ErrorKind::usage, config, NetworkColor::rgb, sizes);
  };
  EXPECT_EQ(usage({.ms_ssim = 1}, {1, 3, 175, 200}),
            "loss.ms_ssim: the pictures are 200x175, it needs 176x176 (data.crop_px times model.scale) or more: raise "
            "data.crop_px, or set loss.ms_ssim = 0");
  EXPECT_EQ(usage({.ms_ssim = 1}, {1, 1, 176, 176}), "");
  EXPECT_THAT(usage({.ssim = 1}, {1, 3, 11, 10}), HasSubstr("10x11, it needs 11x11"));
  EXPECT_EQ(usage({.ssim = 1}, {1, 3, 11, 11}), "");
  EXPECT_THAT(refusal(ErrorKind::usage, {.chroma_weight = 0.5}, NetworkColor::gray, {1, 1, 4, 4}),
              AllOf(HasSubstr("loss.luma_weight = 1"), HasSubstr("loss.chroma_weight = 0.5"), HasSubstr("gray")));

  EXPECT_THROW(Loss({}, NetworkColor::rgb)(torch::zeros({1, 3, 4, 4}), torch::zeros({1, 1, 4, 4})), Error);
  EXPECT_THAT(refusal(ErrorKind::failed, {}, NetworkColor::rgb, {1, 2, 3, 4, 4}), HasSubstr("[N, C, H, W]"));
  EXPECT_THAT(refusal(ErrorKind::failed, {.temporal = 1}, NetworkColor::rgb, {2, 3, 4, 4}),
              HasSubstr("[N, 2, C, H, W]"));
}

// Sizes that are no powers of two, of which a half type has no spectrum.
void expect_fft_in_float32(torch::Device device, Precision precision) {
  const Loss loss(only([](LossConfig& c) { c.fft = 1; }), NetworkColor::rgb);
  const torch::ScalarType type = precision == Precision::fp16   ? torch::kFloat16
                                 : precision == Precision::bf16 ? torch::kBFloat16
                                                                : torch::kFloat32;
  for (const auto& [height, width] : {std::pair{48, 48}, std::pair{60, 100}}) {
    const PicturePair pictures = noise_pair({2, 3, height, width}).to(device, type);
    const double expected = evaluate(loss, pictures.to(device, torch::kFloat32)).total;
    const AutocastGuard autocast(device, precision);
    const Evaluated half = evaluate(loss, pictures);
    EXPECT_NEAR(half.total, expected, 1e-3 * expected);
    EXPECT_EQ(half.gradient.scalar_type(), type);
    EXPECT_TRUE(half.gradient.isfinite().all().item<bool>());
  }
}

TEST(Loss, SpectraAreFloat32UnderAutocast) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) expect_fft_in_float32(torch::kCPU, precision);
}

// --- On a card ---

// Noise in the shapes of torchvision's convolutions: {number, out, in, kernel}.
NamedTensors random_features(const std::vector<std::array<std::int64_t, 4>>& convs) {
  NamedTensors tensors;
  for (const auto& [number, out, in, kernel] : convs) {
    const double gain = std::sqrt(2.0 / static_cast<double>(in * kernel * kernel));
    const auto noise = [&](torch::IntArrayRef sizes) {
      return (uniform(sizes, static_cast<std::uint64_t>(number)) * 2 - 1).to(torch::kFloat32);
    };
    tensors.emplace_back("features." + std::to_string(number) + ".weight",
                         noise({out, in, kernel, kernel}) * (gain * std::sqrt(3.0)));
    tensors.emplace_back("features." + std::to_string(number) + ".bias", noise({out}) * 0.1);
  }
  return tensors;
}

NamedTensors random_vgg(int convs_of_late_blocks) {
  std::vector<std::array<std::int64_t, 4>> convs;
  std::int64_t number = 0, in = 3;
  for (int block = 0; block < 5; ++block, ++number) {
    const std::int64_t out = std::min(64 << block, 512);
    for (int i = 0; i < (block < 2 ? 2 : convs_of_late_blocks); ++i, number += 2, in = out) {
      convs.push_back({number, out, in, 3});
    }
  }
  return random_features(convs);
}

// A machine with a card may have neither the packages nor torchvision.
void write_random_networks(const std::filesystem::path& folder) {
  write_safetensors(folder / "vgg19.pth", random_vgg(4));
  write_safetensors(folder / "vgg16.safetensors", random_vgg(3));
  write_safetensors(
      folder / "alexnet.pth",
      random_features({{0, 64, 3, 11}, {3, 192, 64, 5}, {6, 384, 192, 3}, {8, 256, 384, 3}, {10, 256, 256, 3}}));
  const auto write_lpips = [&](const char* name, const std::array<std::int64_t, 5>& channels) {
    NamedTensors tensors;
    for (std::size_t i = 0; i < channels.size(); ++i) {
      tensors.emplace_back("lin" + std::to_string(i) + ".model.1.weight", uniform({1, channels[i], 1, 1}, i));
    }
    write_safetensors(folder / name, tensors);
  };
  write_lpips("lpips-vgg", {64, 128, 256, 512, 512});
  write_lpips("lpips-alex", {64, 192, 384, 256, 256});
  write_safetensors(folder / "dists", {{"alpha", uniform({1, 1475, 1, 1}, 1)}, {"beta", uniform({1, 1475, 1, 1}, 2)}});
}

class LossGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    set_environment_default("CUBLAS_WORKSPACE_CONFIG", ":4096:8");  // matrix products in a fixed order
  }

  std::vector<LossCase> cases_with_features() const {
    write_random_networks(folder_.path());
    std::vector<LossCase> all = loss_cases();
    for (LossCase made : feature_cases(folder_.path())) {
      made.config.lpips.weights = folder_ / ("lpips-" + made.config.lpips.net);
      made.config.dists.weights = folder_ / "dists";
      all.push_back(made);
    }
    return all;
  }

  const test::TemporaryFolder folder_;
  const torch::Device card_{torch::kCUDA, 0};
};

TEST_F(LossGpuTest, SpectraAreFloat32UnderAutocast) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    expect_fft_in_float32(card_, precision);
  }
}

TEST_F(LossGpuTest, EveryLossIsTheCpus) {
  for (const LossCase& made : cases_with_features()) {
    SCOPED_TRACE(made.name);
    const Loss loss(made.config, made.color);
    const PicturePair pictures = pictures_of_cases().at(made.pictures);
    const Evaluated expected = evaluate(loss, pictures);
    for (const torch::ScalarType type : {torch::kFloat64, torch::kFloat32}) {
      if (loss.has_frozen_networks() && type == torch::kFloat32) continue;  // in TF32
      // In float32 differences of blurred squares lose digits that gradients of SSIM are made of.
      const double tolerance = type == torch::kFloat64 ? 1e-10 : 1e-3;
      const Evaluated ours = evaluate(loss, pictures.to(card_, type));
      EXPECT_LE(relative_error(ours.terms.cpu().to(torch::kFloat64), expected.terms), tolerance);
      EXPECT_LE(relative_error(ours.gradient.cpu().to(torch::kFloat64), expected.gradient), tolerance);
    }
  }
}

TEST_F(LossGpuTest, EveryLossIsDeterministic) {
  apply_determinism(true);
  for (const LossCase& made : cases_with_features()) {
    SCOPED_TRACE(made.name);
    const Loss loss(made.config, made.color);
    const PicturePair pictures = pictures_of_cases().at(made.pictures).to(card_, torch::kFloat32);
    const Evaluated first = evaluate(loss, pictures), second = evaluate(loss, pictures);
    EXPECT_TRUE(torch::equal(first.terms, second.terms));
    EXPECT_TRUE(torch::equal(first.gradient, second.gradient));
  }
  apply_determinism(false);
}

TEST_F(LossGpuTest, EveryLossCanBeCaptured) {
  for (const LossCase& made : cases_with_features()) {
    SCOPED_TRACE(made.name);
    const Loss loss(made.config, made.color);
    const PicturePair pictures = pictures_of_cases().at(made.pictures).to(card_, torch::kFloat32);
    const torch::Tensor prediction = pictures.target.detach().clone().requires_grad_();
    const auto gradient_now = [&] {
      return torch::autograd::grad({loss(prediction, pictures.target).total}, {prediction})[0];
    };
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
    at::cuda::CUDAGraph graph;
    torch::Tensor gradient;
    {
      const c10::cuda::CUDAStreamGuard on_stream(stream);
      gradient_now();
      graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      gradient = gradient_now();
      graph.capture_end();
      const torch::NoGradGuard no_grad;
      prediction.copy_(pictures.prediction);
      graph.replay();
    }
    stream.synchronize();
    EXPECT_LE(relative_error(gradient, evaluate(loss, pictures).gradient), loss.has_frozen_networks() ? 1e-4 : 1e-6);
  }
}

}  // namespace
}  // namespace reelgrad
