#include "reelgrad/nn/architectures.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/nn/small_networks.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class F>
std::string error_of(ErrorKind kind, F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

torch::Tensor rng_state() {
  return at::globalContext().defaultGenerator(torch::kCPU).get_state();
}

// Every tensor comes from the file, and what is no tensor of it does not depend on what the start would have drawn.
TEST(LoadModel, DrawsNoNumbersAndGivesTheWholeNetwork) {
  const torch::NoGradGuard no_grad;
  const test::TemporaryFolder folder;
  for (const Architecture* row : test::own_architectures()) {
    SCOPED_TRACE(row->name);
    torch::manual_seed(1);
    const NetworkSpec spec = test::small_spec(*row, find_architecture(row->name)->scales.back());
    const auto network = make_network(spec);
    network->eval();
    write_safetensors(folder / "model.safetensors", state_dict(*network), model_metadata(spec));
    const torch::Tensor before = rng_state();
    const Model model = load_model(folder / "model.safetensors");
    EXPECT_TRUE(torch::equal(rng_state(), before));
    const NamedTensors expected = state_dict(*network), found = state_dict(*model.network);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].first, expected[i].first);
      EXPECT_TRUE(torch::equal(found[i].second, expected[i].second)) << found[i].first;
    }
    const NetworkInfo info = network->info();
    std::vector<std::int64_t> shape{1, info.in_channels, 2 * info.size_multiple, info.size_multiple};
    if (info.window > 1) shape.insert(shape.begin() + 1, info.window);
    const torch::Tensor input = torch::rand(shape);
    EXPECT_TRUE(torch::equal(model.network->forward(input), network->forward(input)));
  }
}

class ModelFileTest : public testing::Test {
 protected:
  std::filesystem::path file() const { return folder_ / "model.safetensors"; }

 private:
  test::TemporaryFolder folder_;
};

NetworkSpec small_compact() {
  return {.arch = "compact", .scale = 3, .options = {{"features", "8"}, {"convs", "2"}, {"activation", "prelu"}}};
}

TEST(ArchitectureTable, AgreesWithTheConfigurationsTable) {
  std::vector<std::string_view> ours, configs;
  for (const Architecture& row : architecture_table()) ours.push_back(row.name);
  for (const ArchitectureEntry& entry : architectures()) configs.push_back(entry.name);
  EXPECT_THAT(ours, testing::UnorderedElementsAreArray(configs));
}

TEST(ArchitectureTable, EveryScaleAndDefaultOfTheConfigurationIsBuilt) {
  for (const ArchitectureEntry& entry : architectures()) {
    const bool needs_file = std::ranges::find(entry.options, "file", &ArchitectureOption::kind) != entry.options.end();
    if (needs_file) continue;  // torchscript_test.cpp, user_module_test.cpp
    for (const int scale : entry.scales) {
      const auto network = make_network({.arch = std::string(entry.name), .scale = scale, .window = entry.window});
      const NetworkInfo info = network->info();
      EXPECT_EQ(info.scale, scale) << entry.name;
      EXPECT_EQ(info.window, entry.window) << entry.name;
      const torch::NoGradGuard no_grad;
      const std::int64_t side = 8 * info.size_multiple;
      std::vector<std::int64_t> shape{1, 3, side, side};
      if (info.window > 1) shape.insert(shape.begin() + 1, info.window);
      EXPECT_EQ(network->forward(torch::rand(shape)).sizes(), (torch::IntArrayRef{1, 3, side * scale, side * scale}));
    }
  }
}

TEST(MakeNetwork, RefusesWhatIsNotOffered) {
  EXPECT_THAT(error_of(ErrorKind::usage, [] { make_network({.arch = "compat"}); }),
              AllOf(HasSubstr("compat"), HasSubstr("known: ")));
  EXPECT_THAT(error_of(ErrorKind::usage, [] { make_network({.scale = 5}); }), HasSubstr("scale 5"));
  EXPECT_THAT(error_of(ErrorKind::usage, [] { make_network({.window = 3}); }), HasSubstr("data.window = 3"));
  EXPECT_THAT(error_of(ErrorKind::usage,
                       [] {
                         make_network({.options = {{"features", "0"}}});
                       }),
              AllOf(HasSubstr("features"), HasSubstr("\"0\""), HasSubstr("1..1024")));
  EXPECT_THAT(error_of(ErrorKind::usage,
                       [] {
                         make_network({.options = {{"activation", "elu"}}});
                       }),
              AllOf(HasSubstr("\"elu\""), HasSubstr("prelu|relu|leakyrelu")));
  EXPECT_THAT(error_of(ErrorKind::usage, [] { make_network({.options = {{"blocks", "4"}}}); }), HasSubstr("blocks"));
}

TEST_F(ModelFileTest, KeepsItsSpecInTheMetadata) {
  NetworkSpec spec = small_compact();
  spec.color = NetworkColor::yuv444;
  spec.options["activation"] = "leakyrelu";
  const auto network = make_network(spec);
  write_safetensors(file(), state_dict(*network), model_metadata(spec));

  const Model model = load_model(file());
  EXPECT_EQ(model.spec.arch, "compact");
  EXPECT_EQ(model.spec.scale, 3);
  EXPECT_EQ(model.spec.window, 1);
  EXPECT_EQ(model.spec.color, NetworkColor::yuv444);
  EXPECT_EQ(model.spec.options, spec.options);
  EXPECT_FALSE(model.network->is_training());
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = torch::rand({1, 3, 5, 7});
  EXPECT_TRUE(torch::equal(model.network->forward(input), network->forward(input)));
}

TEST_F(ModelFileTest, IsRecognisedFromItsKeysAlone) {
  for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
    NetworkSpec spec = small_compact();
    spec.color = color;
    write_safetensors(file(), state_dict(*make_network(spec)));
    const Model model = load_model(file());
    EXPECT_EQ(model.spec.scale, 3);
    EXPECT_EQ(model.spec.color, color);
    EXPECT_EQ(model.spec.options, spec.options);
  }
}

// safetensors' own writer sorts keys its own way: biases may stand first.
TEST_F(ModelFileTest, IsRecognisedInAnyOrderOfKeys) {
  for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
    NetworkSpec spec = small_compact();
    spec.color = color;
    NamedTensors state = state_dict(*make_network(spec));
    std::ranges::reverse(state);
    write_safetensors(file(), state);
    EXPECT_EQ(load_model(file()).spec.color, color);
  }
}

TEST_F(ModelFileTest, HalfPrecisionWeightsAreReadAsFloat32) {
  NamedTensors half = state_dict(*make_network(small_compact()));
  for (auto& [name, tensor] : half) tensor = tensor.to(torch::kFloat16);
  write_safetensors(file(), half);
  const Model model = load_model(file());
  for (const auto& [name, tensor] : state_dict(*model.network)) EXPECT_EQ(tensor.scalar_type(), torch::kFloat32);
}

TEST_F(ModelFileTest, OfAnotherKindIsNamedByWhatIsInIt) {
  write_safetensors(file(), {{"conv_first.weight", torch::zeros({4, 3, 3, 3})}});
  EXPECT_THAT(error_of(ErrorKind::failed, [&] { load_model(file()); }),
              AllOf(HasSubstr("conv_first.weight [4, 3, 3, 3]"), HasSubstr("nearest: "),
                    HasSubstr(file().filename().string())));
  write_safetensors(file(), {}, {{"note", "empty"}});
  EXPECT_THAT(error_of(ErrorKind::failed, [&] { load_model(file()); }), HasSubstr("no tensors"));
}

// A step on from what we know: the nearest is named, with the first key that differs.
TEST_F(ModelFileTest, OfAKindNearToOneOfOursIsToldApart) {
  NamedTensors state = state_dict(*make_network(small_compact()));
  state.emplace_back("body.7.gain", torch::zeros({3}));
  write_safetensors(file(), state);
  EXPECT_THAT(error_of(ErrorKind::failed, [&] { load_model(file()); }),
              HasSubstr("nearest: compact at scale 3 (11 of 12 tensors fit; body.7.gain: expected none, found [3])"));
}

TEST_F(ModelFileTest, WithMetadataThatWeCannotReadIsRefused) {
  const NamedTensors weights = state_dict(*make_network(small_compact()));
  write_safetensors(file(), weights, {{"reelgrad", "{\"arch\": \"compact\"}"}});
  EXPECT_THAT(error_of(ErrorKind::failed, [&] { load_model(file()); }), HasSubstr("metadata"));
  auto newer = model_metadata(small_compact());
  newer["reelgrad"].replace(newer["reelgrad"].find("\"version\":1"), 11, "\"version\":9");
  write_safetensors(file(), weights, newer);
  EXPECT_THAT(error_of(ErrorKind::failed, [&] { load_model(file()); }), HasSubstr("newer reelgrad"));
  auto unknown = model_metadata(small_compact());
  unknown["reelgrad"].replace(unknown["reelgrad"].find("compact"), 7, "mystery");
  write_safetensors(file(), weights, unknown);
  EXPECT_THAT(error_of(ErrorKind::failed, [&] { load_model(file()); }),
              AllOf(HasSubstr("\"mystery\" (known: "), HasSubstr("compact"), HasSubstr("torchscript, module)")));
}

}  // namespace
}  // namespace reelgrad
