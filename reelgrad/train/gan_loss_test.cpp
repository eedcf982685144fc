#include "reelgrad/train/gan_loss.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/discriminators.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/checkpointing.h"
#include "reelgrad/train/memory_plan.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using ::testing::HasSubstr;

struct GanCase {
  std::string name;
  DiscriminatorOptions options;
  std::string kind;
  double label_smoothing = 0, r1 = 0;
  CheckpointPlan plan;
};

std::vector<GanCase> gan_cases() {
  std::vector<GanCase> cases{
      {"unet", {.net = "unet_sn"}, "vanilla", 0, 0.5},
      {"unet-checkpointed", {.net = "unet_sn"}, "ragan", 0, 0, {.segments = 4}},
      {"unet-without-skips", {.net = "unet_sn", .channels = 9, .skips = false}, "hinge"},
      {"unet-two-scales", {.net = "unet_sn", .scales = 2}, "lsgan", 0.1},
      {"unet-two-scales-checkpointed", {.net = "unet_sn", .scales = 2}, "vanilla", 0.2, 0, {.segments = 7}},
      {"vgg", {.net = "patch_vgg"}, "ragan", 0.1},
      {"vgg-checkpointed", {.net = "patch_vgg"}, "ragan", 0.1, 0, {.segments = 3}},
      {"patch-batch", {.net = "patchgan"}, "ralsgan"},
      {"patch-spectral", {.net = "patchgan", .layers = 2, .norm = "spectral"}, "lsgan", 0, 1},
      {"patch-three-scales", {.net = "patchgan", .scales = 3, .layers = 1, .norm = "none"}, "hinge", 0, 0.1},
  };
  for (GanCase& made : cases) {
    made.options.features = 4;
    made.options.size_px = 32;
  }
  return cases;
}

constexpr int kGanSteps = 3;
constexpr double kGanRate = 0.05;

nlohmann::json to_json(const GanCase& made) {
  const DiscriminatorOptions& o = made.options;
  return {{"name", made.name},      {"net", o.net},       {"channels", o.channels},
          {"features", o.features}, {"scales", o.scales}, {"size", o.size_px},
          {"layers", o.layers},     {"norm", o.norm},     {"skips", o.skips},
          {"kind", made.kind},      {"r1", made.r1},      {"label_smoothing", made.label_smoothing},
          {"steps", kGanSteps},     {"lr", kGanRate}};
}

std::shared_ptr<Discriminator> double_discriminator(const GanCase& made) {
  auto network = make_discriminator(made.options, 3);
  network->to(torch::kFloat64);
  return network;
}

struct GanPictures {
  torch::Tensor real, fake;
};

GanPictures gan_pictures(const GanCase& made) {
  const std::int64_t size = made.options.size_px;
  const auto noise = [&](std::uint64_t seed) {
    return torch::rand({3, made.options.channels, size, size}, at::detail::createCPUGenerator(seed), torch::kFloat64);
  };
  return {noise(1), 0.5 * noise(1) + 0.5 * noise(2)};
}

// The usual loop, as gan_reference.py has it.
std::map<std::string, torch::Tensor> trained_for_steps(const GanCase& made) {
  const auto network = double_discriminator(made);
  const auto logits = [&](const torch::Tensor& x) { return forward_checkpointed(*network, x, made.plan); };
  const GanLoss gan(parse_gan_kind(made.kind), made.label_smoothing);
  const GanPictures pictures = gan_pictures(made);
  const std::vector<torch::Tensor> parameters = network->parameters();
  std::map<std::string, torch::Tensor> out;
  for (int step = 0; step < kGanSteps; ++step) {
    const auto number = std::to_string(step);
    const torch::Tensor fake = pictures.fake.clone().requires_grad_();
    const torch::Tensor real = pictures.real.clone().requires_grad_(made.r1 > 0);
    std::vector<torch::Tensor> real_logits;
    {
      const torch::NoGradGuard no_grad;
      real_logits = logits(real);
    }
    torch::Tensor loss = gan.generator_loss(real_logits, logits(fake));
    out["gradient." + number] = torch::autograd::grad({loss}, {fake}).front();
    out["generator." + number] = loss.detach();

    real_logits = logits(real);
    const std::vector<torch::Tensor> fake_logits = logits(fake.detach());
    loss = gan.discriminator_loss(real_logits, fake_logits);
    if (made.r1 > 0) loss = loss + made.r1 * r1_penalty(real_logits, real);
    const auto gradients = torch::autograd::grad({loss}, parameters, {}, std::nullopt, false, /*allow_unused=*/true);
    out["discriminator." + number] = loss.detach();
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (gradients[i].defined()) torch::Tensor(parameters[i]).sub_(kGanRate * gradients[i]);
    }
  }
  for (const auto& [name, tensor] : state_dict(*network)) out[name] = tensor;
  return out;
}

TEST(GanReference, StepsArePyTorchs) {
  at::set_num_threads(1);
  const test::TemporaryFolder folder;
  nlohmann::json request = nlohmann::json::array();
  for (const GanCase& made : gan_cases()) {
    request.push_back(to_json(made));
    const GanPictures pictures = gan_pictures(made);
    write_safetensors(folder / (made.name + ".pictures.safetensors"),
                      {{"real", pictures.real}, {"fake", pictures.fake}});
    write_safetensors(folder / (made.name + ".state.safetensors"), state_dict(*double_discriminator(made)));
  }
  std::ofstream(folder / "cases.json") << request;
  const ProcessResult result = run_process(
      {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/train/gan_reference.py", folder.path().string()},
      std::chrono::minutes(2));
  ASSERT_EQ(result.exit_code, 0) << result.err;

  for (const GanCase& made : gan_cases()) {
    SCOPED_TRACE(made.name);
    const std::map<std::string, torch::Tensor> ours = trained_for_steps(made);
    const SafetensorsFile file = read_safetensors(folder / (made.name + ".out.safetensors"));
    ASSERT_EQ(file.tensors.size(), ours.size());
    for (const auto& [name, expected] : file.tensors) {
      const double largest = expected.abs().max().item<double>();
      EXPECT_LE((ours.at(name) - expected).abs().max().item<double>(), 1e-9 * largest) << name;
    }
    // The start is PyTorch's too.
    const std::shared_ptr<Discriminator> fresh = make_discriminator(made.options, 7);
    const NamedTensors start = state_dict(*fresh);
    const SafetensorsFile expected = read_safetensors(folder / (made.name + ".start.safetensors"));
    const std::map<std::string, torch::Tensor> by_name(expected.tensors.begin(), expected.tensors.end());
    ASSERT_EQ(start.size(), by_name.size());
    for (const auto& [name, tensor] : start) EXPECT_TRUE(torch::allclose(tensor, by_name.at(name), 1e-6, 1e-7)) << name;
  }
}

TEST(Discriminators, PowerIterationsAreOfTrainingModeAlone) {
  const auto network = make_discriminator({.features = 4}, 1);
  const torch::Tensor x = torch::rand({1, 3, 16, 16}, at::detail::createCPUGenerator(1));
  const torch::Tensor& u = network->named_buffers()["conv3.weight_u"];
  const torch::Tensor before = u.clone();
  network->eval();
  const torch::Tensor logits = network->forward(x).front();
  EXPECT_EQ(logits.sizes(), torch::IntArrayRef({1, 1, 16, 16}));
  EXPECT_TRUE(torch::equal(network->forward(x).front(), logits));
  EXPECT_TRUE(torch::equal(u, before));
  network->train();
  for (int i = 0; i < 200; ++i) network->forward(x);
  EXPECT_FALSE(torch::equal(u, before));
  // By then it is the largest singular value that the weight is divided by.
  const torch::Tensor weight = network->named_parameters()["conv3.weight_orig"].flatten(1);
  const torch::Tensor sigma = at::dot(u, at::mv(weight, network->named_buffers()["conv3.weight_v"]));
  EXPECT_NEAR(sigma.item<double>(), at::linalg_matrix_norm(weight, 2).item<double>(), 1e-3);
}

TEST(Discriminators, PowerIterationsIgnoreAutocast) {
  const auto plain = make_discriminator({.features = 4}, 1), cast = make_discriminator({.features = 4}, 1);
  const torch::Tensor x = torch::rand({1, 3, 16, 16}, at::detail::createCPUGenerator(1));
  const torch::Tensor expected = plain->forward(x).front();
  torch::Tensor logits;
  {
    const AutocastGuard autocast(torch::kCPU, Precision::bf16);
    logits = cast->forward(x).front();
  }
  EXPECT_EQ(logits.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(logits.to(torch::kFloat32), expected, 0.05, 0.02));
  for (const auto& buffer : plain->named_buffers()) {
    EXPECT_TRUE(torch::equal(buffer.value(), cast->named_buffers()[buffer.key()])) << buffer.key();
  }
}

TEST(Discriminators, LeaveTheGeneratorAsItWas) {
  torch::manual_seed(5);
  const torch::Tensor expected = torch::rand({3});
  torch::manual_seed(5);
  make_discriminator({.features = 4}, 1);
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
}

TEST(Discriminators, RefuseWhatTheyDoNotTake) {
  const auto refusal = [](const DiscriminatorOptions& options) -> std::string {
    try {
      make_discriminator(options, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.net = "unet"}), "discriminator: unknown \"unet\", allowed: unet_sn, patch_vgg, patchgan");
  EXPECT_EQ(refusal({.features = 4, .size_px = 100}),
            "discriminator unet_sn: its pictures are 100 pixels a side (data.crop_px times model.scale), allowed: "
            "multiples of 8 from 8 up");
  EXPECT_THAT(refusal({.features = 4, .scales = 2, .size_px = 24}), HasSubstr("at 2 scales: its pictures are 24"));
  EXPECT_THAT(refusal({.net = "patch_vgg", .features = 4, .size_px = 48}), HasSubstr("multiples of 32"));
  EXPECT_THAT(refusal({.net = "patch_vgg", .features = 4, .size_px = 288}), HasSubstr("multiples of 64"));
  EXPECT_THAT(refusal({.net = "patchgan", .features = 4, .size_px = 16}), HasSubstr("allowed: 24 or more"));
  EXPECT_THAT(refusal({.net = "patchgan", .norm = "layer"}), HasSubstr("allowed: batch, spectral, none"));
  EXPECT_EQ(refusal({.net = "patch_vgg", .features = 4, .size_px = 64}), "");
  EXPECT_TRUE(has_batch_statistics(*make_discriminator({.net = "patch_vgg", .features = 4, .size_px = 64}, 1)));
  EXPECT_FALSE(has_batch_statistics(*make_discriminator({.features = 4}, 1)));
}

// --- On a card ---

class DiscriminatorsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    set_environment_default("CUBLAS_WORKSPACE_CONFIG", ":4096:8");  // matrix products in a fixed order
  }
  const torch::Device card_{torch::kCUDA, 0};
};

// Logits, and the gradient of their sum by the picture.
std::vector<torch::Tensor> logits_and_gradient(Discriminator& network, const torch::Tensor& pictures) {
  const torch::Tensor x = pictures.detach().clone().requires_grad_();
  torch::Tensor sum;
  std::vector<torch::Tensor> out = network.forward(x);
  for (const torch::Tensor& logits : out) sum = sum.defined() ? sum + logits.square().sum() : logits.square().sum();
  out.push_back(torch::autograd::grad({sum}, {x}).front());
  return out;
}

TEST_F(DiscriminatorsGpuTest, AreTheCpusInEitherMode) {
  for (const GanCase& made : gan_cases()) {
    SCOPED_TRACE(made.name);
    const torch::Tensor real = gan_pictures(made).real;
    const auto network = double_discriminator(made);
    network->eval();
    const std::vector<torch::Tensor> expected = logits_and_gradient(*network, real);
    network->to(card_);
    for (const bool deterministic : {false, true}) {
      apply_determinism(deterministic);
      const std::vector<torch::Tensor> ours = logits_and_gradient(*network, real.to(card_));
      const std::vector<torch::Tensor> again = logits_and_gradient(*network, real.to(card_));
      for (std::size_t i = 0; i < ours.size(); ++i) {
        EXPECT_TRUE(torch::allclose(ours[i].cpu(), expected[i], 1e-9, 1e-10));
        EXPECT_TRUE(!deterministic || torch::equal(ours[i], again[i]));
      }
    }
    apply_determinism(false);
  }
}

TEST_F(DiscriminatorsGpuTest, CanBeCapturedWithTheirPowerIterations) {
  const GanCase made = gan_cases().front();
  const torch::Tensor real = gan_pictures(made).real.to(card_);
  const auto captured = double_discriminator(made), eager = double_discriminator(made);
  captured->to(card_);
  eager->to(card_);
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  at::cuda::CUDAGraph graph;
  std::vector<torch::Tensor> ours;
  {
    const c10::cuda::CUDAStreamGuard on_stream(stream);
    logits_and_gradient(*captured, real);
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    ours = logits_and_gradient(*captured, real);
    graph.capture_end();
    graph.replay();
    graph.replay();
  }
  stream.synchronize();
  std::vector<torch::Tensor> expected;
  for (int pass = 0; pass < 3; ++pass) expected = logits_and_gradient(*eager, real);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::allclose(ours[i], expected[i], 1e-9, 1e-10));
}

TEST(GanLoss, OfHalfLogitsIsFloat32) {
  const std::vector<torch::Tensor> logits{torch::full({2, 1, 8, 8}, 0.5, torch::kBFloat16)};
  const torch::Tensor loss = GanLoss(GanKind::vanilla).discriminator_loss(logits, logits);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(loss.item<double>(), std::log1p(std::exp(-0.5)) + std::log1p(std::exp(0.5)), 1e-6);
}

TEST(GanLoss, RefusesUnknownKindsAndLabelsOfHinge) {
  EXPECT_THROW(parse_gan_kind("wgan"), Error);
  EXPECT_THROW(GanLoss(GanKind::hinge, 0.1), Error);
}

}  // namespace
}  // namespace reelgrad
