// Pictures and settings for the tests of losses.
#pragma once
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reelgrad/train/amp.h"
#include "reelgrad/train/loss.h"

namespace reelgrad::test {

inline torch::Tensor uniform(torch::IntArrayRef sizes, std::uint64_t seed) {
  return torch::rand(sizes, at::detail::createCPUGenerator(seed), torch::kFloat64);
}

struct PicturePair {
  torch::Tensor prediction, target;

  PicturePair to(torch::Device device, torch::ScalarType type) const {
    return {prediction.to(device, type), target.to(device, type)};
  }
};

// Noise, and the same with a fifth of other noise mixed in.
inline PicturePair noise_pair(torch::IntArrayRef sizes) {
  const torch::Tensor target = uniform(sizes, 1);
  return {0.8 * target + 0.2 * uniform(sizes, 2), target};
}

inline LossConfig only(const std::function<void(LossConfig&)>& change) {
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

inline std::vector<LossCase> loss_cases() {
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
      {"temporal-of-three", only([](LossConfig& c) { c.temporal = 1; }), NetworkColor::rgb, "three frames"},
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
inline std::vector<LossCase> feature_cases(const std::filesystem::path& folder) {
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

inline std::map<std::string, PicturePair> pictures_of_cases() {
  return {{"medium", noise_pair({2, 3, 35, 32})},
          {"small", noise_pair({2, 3, 20, 17})},
          {"large", noise_pair({2, 3, 176, 192})},
          {"frames", noise_pair({2, 2, 3, 14, 16})},
          {"three frames", noise_pair({2, 3, 3, 14, 16})}};
}

struct Evaluated {
  double total = 0;
  torch::Tensor terms, gradient;
};

inline Evaluated evaluate(const Loss& loss, const PicturePair& pictures) {
  const torch::Tensor prediction = pictures.prediction.detach().clone().requires_grad_();
  const LossValue value = loss(prediction, pictures.target);
  value.total.backward();
  return {value.total.item<double>(), value.terms, prediction.grad()};
}

inline double value_of(const LossConfig& config, const torch::Tensor& prediction, const torch::Tensor& target,
                       NetworkColor color = NetworkColor::rgb) {
  return Loss(config, color)(prediction, target).total.item<double>();
}

// Of the largest.
inline double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  EXPECT_EQ(value.sizes(), expected.sizes());
  return ((value - expected).abs().max() / expected.abs().max()).item<double>();
}

// Sizes that are no powers of two, of which a half type has no spectrum.
inline void expect_fft_in_float32(torch::Device device, Precision precision) {
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

}  // namespace reelgrad::test
