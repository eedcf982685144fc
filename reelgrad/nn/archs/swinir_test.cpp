#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

using Options = std::map<std::string, std::string>;

// Two groups: of two blocks and of three, so that the second kind of window ends one and begins none.
NetworkSpec small_swinir(int scale, const std::string& upsampler, Options others = {},
                         NetworkColor color = NetworkColor::rgb) {
  Options options{{"features", "12"},     {"depths", "2,3"}, {"heads", "2,3"},        {"window", "4"},
                  {"mlp_features", "20"}, {"img_size", "8"}, {"upsampler", upsampler}};
  others.merge(options);
  return {.arch = "swinir", .scale = scale, .color = color, .options = std::move(others)};
}

void expect_spandrels(const NetworkSpec& spec, int height = 14, int width = 11) {
  test::expect_agrees_with_spandrel(
      {.spec = spec, .id = "SwinIR", .height = height, .width = width, .drops_paths = true});
}

TEST(SwinirSpandrel, LightTwice) {
  expect_spandrels(small_swinir(2, "pixelshuffledirect"));
}

TEST(SwinirSpandrel, LightThriceInGray) {
  expect_spandrels(small_swinir(3, "pixelshuffledirect", {{"img_size", "16"}}, NetworkColor::gray));
}

TEST(SwinirSpandrel, ShuffledOften) {
  expect_spandrels(small_swinir(4, "pixelshuffle", {{"window", "5"}, {"img_size", "0"}}));
}

TEST(SwinirSpandrel, ShuffledByThree) {
  expect_spandrels(small_swinir(3, "pixelshuffle", {{"mlp_features", "0"}}));
}

TEST(SwinirSpandrel, NearestWithThreeConvolutions) {
  expect_spandrels(small_swinir(4, "nearest+conv", {{"resi_connection", "3conv"}}));
  expect_spandrels(small_swinir(8, "nearest+conv",
                                {{"resi_connection", "3conv"}, {"depths", "1"}, {"heads", "1"}, {"img_size", "0"}}));
}

TEST(SwinirSpandrel, Denoising) {
  expect_spandrels(small_swinir(1, "none"));
  expect_spandrels(small_swinir(1, "none", {}, NetworkColor::gray));
}

// Windows of 7 mean that the network sees values up to 255.
TEST(SwinirSpandrel, JpegWithWindowsOf7) {
  expect_spandrels(small_swinir(1, "none", {{"window", "7"}, {"img_size", "126"}, {"depths", "2"}, {"heads", "4"}}), 21,
                   9);
}

// spandrel pads folded pictures to too little, so that they need the right size from the start.
TEST(SwinirSpandrel, Folded) {
  test::expect_agrees_with_spandrel({.spec = small_swinir(2, "pixelshuffle", {{"unshuffle", "2"}}),
                                     .id = "SwinIR",
                                     .height = 24,
                                     .width = 16,
                                     .renames = true});
  test::expect_agrees_with_spandrel({.spec = small_swinir(1, "nearest+conv", {{"unshuffle", "4"}}),
                                     .id = "SwinIR",
                                     .height = 32,
                                     .width = 48,
                                     .renames = true});
}

TEST(Swinir, KeepsTheContract) {
  const Options shallow{{"depths", "2"}, {"heads", "2"}};
  for (const NetworkSpec& spec :
       {small_swinir(2, "pixelshuffledirect", shallow), small_swinir(4, "pixelshuffle", shallow),
        small_swinir(2, "nearest+conv", {{"depths", "1,1"}, {"resi_connection", "3conv"}}),
        small_swinir(1, "none", {{"depths", "1,2"}}, NetworkColor::gray),
        small_swinir(1, "pixelshuffle", {{"depths", "2"}, {"heads", "2"}, {"unshuffle", "2"}})}) {
    SCOPED_TRACE(spec.options.at("upsampler") + " after " + spec.options.at("depths"));
    test::expect_keeps_the_contract(spec);
  }
}

TEST(Swinir, IsRecognisedWithEveryOption) {
  for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
    for (const char* convs : {"1conv", "3conv"}) {
      const Options options{{"resi_connection", convs}};
      for (const int scale : {1, 2, 3, 4, 8}) {
        test::expect_is_recognised(small_swinir(scale, "pixelshuffledirect", options, color));
        test::expect_is_recognised(small_swinir(scale, "pixelshuffle", options, color));
      }
      for (const int scale : {2, 4, 8}) test::expect_is_recognised(small_swinir(scale, "nearest+conv", options, color));
      test::expect_is_recognised(small_swinir(1, "none", options, color));
    }
  }
  for (const char* unshuffle : {"2", "4"})
    test::expect_is_recognised(small_swinir(2, "pixelshuffle", {{"unshuffle", unshuffle}}));
  for (const char* window : {"2", "5", "7", "8", "16", "48"})
    test::expect_is_recognised(small_swinir(2, "pixelshuffledirect", {{"window", window}, {"img_size", "0"}}));
}

// The paper's 878, 886 and 897 thousand leave out the 24 tables of biases, of 225 places and 6 heads.
TEST(Swinir, ParameterCountsArePublished) {
  const auto light = [](int scale) { return test::count_trained({.arch = "swinir", .scale = scale}); };
  constexpr int kTables = 24 * 225 * 6;
  EXPECT_EQ(light(2), 877'752 + kTables);
  EXPECT_EQ(light(3), 885'867 + kTables);
  EXPECT_EQ(light(4), 897'228 + kTables);
}

TEST(Swinir, ParameterCountsOfLargerOnesAreSpandrels) {
  const auto count = [](int scale, Options options, NetworkColor color = NetworkColor::rgb) {
    return test::count_trained({.arch = "swinir", .scale = scale, .color = color, .options = std::move(options)});
  };
  const auto medium = [](const char* upsampler) {
    return Options{{"features", "180"}, {"depths", "6,6,6,6,6,6"}, {"heads", "6,6,6,6,6,6"}, {"upsampler", upsampler}};
  };
  EXPECT_EQ(count(2, medium("pixelshuffle")), 11'752'487);
  EXPECT_EQ(count(3, medium("pixelshuffle")), 11'937'127);
  EXPECT_EQ(count(4, medium("nearest+conv")), 11'715'559);
  EXPECT_EQ(count(1, medium("none"), NetworkColor::gray), 11'497'681);
  EXPECT_EQ(count(4, {{"features", "240"},
                      {"depths", "6,6,6,6,6,6,6,6,6"},
                      {"heads", "8,8,8,8,8,8,8,8,8"},
                      {"upsampler", "nearest+conv"},
                      {"resi_connection", "3conv"}}),
            28'013'059);
}

TEST(Swinir, StartsAsThePapersDoes) {
  torch::manual_seed(5);
  const auto network = make_network({.arch = "swinir", .scale = 2});
  const NamedTensors state = state_dict(*network);
  const std::map<std::string, torch::Tensor> tensors(state.begin(), state.end());
  const std::string block = "layers.1.residual_group.blocks.1.";
  for (const char* key :
       {"attn.qkv.weight", "attn.proj.weight", "mlp.fc1.weight", "attn.relative_position_bias_table"}) {
    const torch::Tensor values = tensors.at(block + key);
    EXPECT_NEAR(values.std().item<double>(), 0.02, 0.002) << key;
    EXPECT_NEAR(values.mean().item<double>(), 0, 0.002) << key;
  }
  EXPECT_EQ(tensors.at(block + "attn.qkv.bias").abs().max().item<float>(), 0);
  EXPECT_EQ(tensors.at(block + "norm1.weight").min().item<float>(), 1);
}

TEST(Swinir, TakesAnySizeAndShowsTheSameForTheRest) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(small_swinir(2, "pixelshuffledirect"));
  network->eval();
  for (const auto& [height, width] : {std::pair{1, 1}, std::pair{2, 9}, std::pair{3, 1}, std::pair{8, 4}}) {
    const torch::Tensor output = network->forward(torch::rand({1, 3, height, width}));
    EXPECT_EQ(output.sizes(), (torch::IntArrayRef{1, 3, height * 2, width * 2}));
    EXPECT_TRUE(output.isfinite().all().item<bool>());
  }
}

// Tiles that begin at a window's edge and reach far enough are the whole.
TEST(Swinir, TilesAreTheWhole) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(small_swinir(1, "none", {{"depths", "2"}, {"heads", "2"}}));
  network->eval();
  const int window = network->info().size_multiple;
  EXPECT_EQ(window, 4);
  const int reach = (network->info().receptive_radius_px + window - 1) / window * window;
  const torch::Tensor input = torch::rand({1, 3, window, 4 * reach});
  const torch::Tensor whole = network->forward(input).narrow(3, 2 * reach, reach);
  const torch::Tensor tile = network->forward(input.narrow(3, reach, 3 * reach)).narrow(3, reach, reach);
  EXPECT_LE((whole - tile).abs().max().item<double>(), 1e-5);
}

TEST(Swinir, DropsPathsInTrainingOnly) {
  NetworkSpec spec = small_swinir(1, "none", {{"drop_path", "90"}});
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(spec);
  for (torch::Tensor& parameter : network->parameters()) parameter.add_(at::randn_like(parameter), 0.05);
  const torch::Tensor input = torch::rand({4, 3, 8, 8});
  network->train();
  EXPECT_FALSE(torch::equal(network->forward(input), network->forward(input)));
  network->eval();
  const torch::Tensor kept = network->forward(input);
  EXPECT_TRUE(torch::equal(network->forward(input), kept));
  spec.options["drop_path"] = "0";
  const auto without = make_network(spec);
  load_strict(*without, state_dict(*network), "the same");
  without->train();
  EXPECT_TRUE(torch::equal(without->forward(input), kept));
}

// Larger than 256, which bfloat16 does not count to one by one.
TEST(Swinir, KeepsIndicesInEveryPrecision) {
  const auto network = make_network(small_swinir(1, "none", {{"window", "16"}, {"img_size", "0"}}));
  const auto indices_of = [&] {
    const NamedTensors state = state_dict(*network);
    const std::map<std::string, torch::Tensor> tensors(state.begin(), state.end());
    return tensors.at("layers.0.residual_group.blocks.0.attn.relative_position_index");
  };
  const torch::Tensor before = indices_of().clone();
  EXPECT_EQ(before.max().item<int>(), 31 * 31 - 1);
  network->to(torch::kCPU, torch::kBFloat16);
  EXPECT_TRUE(torch::equal(indices_of(), before));
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(network->forward(torch::rand({1, 3, 16, 16}).to(torch::kBFloat16)).scalar_type(), torch::kBFloat16);
  network->to(torch::kFloat32);
  EXPECT_TRUE(torch::equal(indices_of(), before));
}

TEST(Swinir, RefusesWhatDoesNotGoTogether) {
  const auto expect_refused = [](const NetworkSpec& spec, const std::string& part) {
    try {
      make_network(spec);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  };
  expect_refused(small_swinir(2, "none"), "upsampler = \"none\"");
  expect_refused(small_swinir(2, "pixelshuffledirect", {{"unshuffle", "2"}}), "unshuffle = 2");
  expect_refused(small_swinir(3, "nearest+conv"), "scale 3");
  expect_refused(small_swinir(2, "pixelshuffle", {{"unshuffle", "3"}}), "unshuffle = 3");
  expect_refused(small_swinir(2, "pixelshuffle", {{"unshuffle", "2"}}, NetworkColor::gray), "three channels");
  expect_refused(small_swinir(2, "pixelshuffle", {{"heads", "2"}}), "heads of 1 groups and depths of 2");
  expect_refused(small_swinir(2, "pixelshuffle", {{"heads", "2,5"}}), "features = 12 with 5 heads");
  expect_refused(small_swinir(2, "pixelshuffle", {{"img_size", "10"}}), "img_size = 10");
  expect_refused(small_swinir(2, "pixelshuffle", {{"depths", "2,x"}}), "depths = \"2,x\"");
}

}  // namespace
}  // namespace reelgrad
