#include "reelgrad/nn/recognition.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/nn/discriminators.h"
#include "reelgrad/nn/small_networks.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Whole {
  std::string arch;
  NamedTensors state;
};

// One of each, at a scale that is not the usual one where there are several.
class DamagedFileTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const Architecture* row : test::own_architectures()) {
      const NetworkSpec spec = test::small_spec(*row, find_architecture(row->name)->scales.back());
      networks_.push_back({spec.arch, state_dict(*make_network(spec))});
    }
  }
  static void TearDownTestSuite() { networks_.clear(); }

  // Of the first, of the last and of some between.
  static std::vector<std::size_t> some_places(std::size_t count) {
    std::vector<std::size_t> places;
    constexpr std::size_t kTried = 4;
    for (std::size_t i = 0; i < kTried; ++i) places.push_back(i * (count - 1) / (kTried - 1));
    return places;
  }

  static Candidate nearest_of(const NamedTensors& damaged, const std::string& arch) {
    const auto nearest = nearest_architectures(damaged);
    EXPECT_EQ(nearest.size(), 3u);
    EXPECT_EQ(nearest[0].spec.arch, arch);
    return nearest[0];
  }

  inline static std::vector<Whole> networks_;
};

TEST_F(DamagedFileTest, AMissingKeyIsNamedWithItsShape) {
  for (const auto& [arch, state] : networks_) {
    SCOPED_TRACE(arch);
    for (const std::size_t place : some_places(state.size())) {
      SCOPED_TRACE(state[place].first);
      NamedTensors damaged = state;
      damaged.erase(damaged.begin() + static_cast<std::ptrdiff_t>(place));
      if (recognise(damaged)) continue;  // another network, without it
      const Candidate nearest = nearest_of(damaged, arch);
      EXPECT_EQ(nearest.key, state[place].first);
      EXPECT_EQ(nearest.expected, state[place].second.sizes().vec());
      EXPECT_EQ(nearest.found, std::nullopt);
      EXPECT_EQ(nearest.fitting, state.size() - 1);
      EXPECT_EQ(nearest.tensors, state.size());
    }
  }
}

TEST_F(DamagedFileTest, AWrongShapeIsNamedBesideTheRightOne) {
  for (const auto& [arch, state] : networks_) {
    SCOPED_TRACE(arch);
    for (const std::size_t place : some_places(state.size())) {
      SCOPED_TRACE(state[place].first);
      NamedTensors damaged = state;
      std::vector<std::int64_t> shape = state[place].second.sizes().vec();
      shape.push_back(2);
      damaged[place].second = torch::zeros(shape);
      EXPECT_FALSE(recognise(damaged));
      const Candidate nearest = nearest_of(damaged, arch);
      EXPECT_EQ(nearest.key, state[place].first);
      EXPECT_EQ(nearest.expected, state[place].second.sizes().vec());
      EXPECT_EQ(nearest.found, shape);
      EXPECT_EQ(nearest.fitting, state.size() - 1);
    }
  }
}

TEST_F(DamagedFileTest, ALayerOfAnotherWidthIsNamed) {
  for (const auto& [arch, state] : networks_) {
    SCOPED_TRACE(arch);
    for (const std::size_t place : {std::size_t{0}, state.size() / 2}) {
      SCOPED_TRACE(state[place].first);
      NamedTensors damaged = state;
      std::vector<std::int64_t> shape = state[place].second.sizes().vec();
      if (shape.empty()) continue;
      shape[0] += 5;
      damaged[place].second = torch::zeros(shape);
      EXPECT_FALSE(recognise(damaged));
      const Candidate nearest = nearest_of(damaged, arch);
      EXPECT_EQ(nearest.key, state[place].first);
      EXPECT_EQ(nearest.found, shape);
    }
  }
}

TEST_F(DamagedFileTest, AKeyTooManyIsNamed) {
  for (const auto& [arch, state] : networks_) {
    SCOPED_TRACE(arch);
    NamedTensors damaged = state;
    damaged.insert(damaged.begin(), {"extra.gain", torch::zeros({3})});
    EXPECT_FALSE(recognise(damaged));
    const Candidate nearest = nearest_of(damaged, arch);
    EXPECT_EQ(nearest.key, "extra.gain");
    EXPECT_EQ(nearest.expected, std::nullopt);
    EXPECT_EQ(nearest.found, std::vector<std::int64_t>{3});
    EXPECT_EQ(nearest.fitting + 1, nearest.tensors);
  }
}

TEST_F(DamagedFileTest, WithoutItsLastLayerItIsStillNamed) {
  for (const auto& [arch, state] : networks_) {
    SCOPED_TRACE(arch);
    NamedTensors damaged = state;
    const std::string last = damaged.back().first;
    const std::string layer = last.substr(0, last.rfind('.') + 1);
    std::erase_if(damaged, [&](const auto& item) { return item.first.starts_with(layer); });
    if (recognise(damaged)) continue;  // another network, without it
    const Candidate nearest = nearest_of(damaged, arch);
    EXPECT_THAT(nearest.key, testing::StartsWith(layer));
    EXPECT_EQ(nearest.found, std::nullopt);
    EXPECT_THAT(describe_unrecognised(damaged, {nearest}),
                AllOf(HasSubstr("nearest: " + arch), HasSubstr(nearest.key + ": expected ["), HasSubstr("found none")));
  }
}

TEST(Recognition, ShapesThatSayMoreThanTheFileHoldsAreNotFollowed) {
  const NamedTensors state{{"m_body.200.res.0.weight", torch::zeros({4096, 0, 3, 3})},
                           {"m_head.weight", torch::zeros({4096, 3, 3, 0})},
                           {"m_tail.weight", torch::zeros({3, 4096, 0, 3})}};
  EXPECT_FALSE(recognise(state));
  EXPECT_EQ(nearest_architectures(state).size(), 3u);
}

std::vector<DiscriminatorOptions> discriminators() {
  return {{.net = "unet_sn", .channels = 3, .features = 8},
          {.net = "unet_sn", .channels = 6, .features = 4, .scales = 2},
          {.net = "patch_vgg", .channels = 3, .features = 4, .size_px = 64},
          {.net = "patch_vgg", .channels = 1, .features = 4, .size_px = 256},
          {.net = "patchgan", .channels = 3, .features = 4, .layers = 2, .norm = "batch"},
          {.net = "patchgan", .channels = 3, .features = 4, .scales = 3, .layers = 3, .norm = "spectral"},
          {.net = "patchgan", .channels = 1, .features = 4, .layers = 4, .norm = "none"}};
}

TEST(Recognition, ADiscriminatorIsToldByItsKeysAndIsNoModel) {
  const test::TemporaryFolder folder;
  for (const DiscriminatorOptions& options : discriminators()) {
    SCOPED_TRACE(describe(options));
    NamedTensors state = state_dict(*make_discriminator(options, 1));
    EXPECT_EQ(recognise_discriminator(state), options);
    EXPECT_FALSE(recognise(state));
    write_safetensors(folder / "d.safetensors", state);
    try {
      load_model(folder / "d.safetensors");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(describe(options)), HasSubstr("[discriminator]")));
    }
    state.pop_back();
    EXPECT_EQ(recognise_discriminator(state), std::nullopt);
  }
}

TEST(Recognition, NoNetworkIsADiscriminator) {
  for (const Architecture* row : test::own_architectures()) {
    const NamedTensors state =
        state_dict(*make_network(test::small_spec(*row, find_architecture(row->name)->usual_scale())));
    EXPECT_EQ(recognise_discriminator(state), std::nullopt) << row->name;
  }
}

}  // namespace
}  // namespace reelgrad
