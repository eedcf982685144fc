// Every loss against PyTorch, pytorch-msssim, lpips and DISTS-pytorch, in float64.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/loss_testing.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using test::evaluate;
using test::Evaluated;
using test::feature_cases;
using test::loss_cases;
using test::LossCase;
using test::PicturePair;
using test::pictures_of_cases;
using test::relative_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace reelgrad
