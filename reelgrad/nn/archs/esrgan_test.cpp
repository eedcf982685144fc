#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

using Options = std::map<std::string, std::string>;

// spandrel knows no other growth than 32.
NetworkSpec small_esrgan(int scale, const Options& changed = {}, NetworkColor color = NetworkColor::rgb) {
  NetworkSpec spec{.arch = "esrgan",
                   .scale = scale,
                   .color = color,
                   .options = {{"features", "8"},
                               {"blocks", "2"},
                               {"growth", "32"},
                               {"unshuffle", "1"},
                               {"plus", "false"},
                               {"keys", "model"}}};
  for (const auto& [name, value] : changed) spec.options[name] = value;
  return spec;
}

TEST(EsrganSpandrel, FourTimes) {
  test::expect_agrees_with_spandrel({.spec = small_esrgan(4), .id = "ESRGAN"});
}

TEST(EsrganSpandrel, PlusTwice) {
  test::expect_agrees_with_spandrel({.spec = small_esrgan(2, {{"plus", "true"}}), .id = "ESRGAN"});
}

TEST(EsrganSpandrel, GrayOnce) {
  test::expect_agrees_with_spandrel({.spec = small_esrgan(1, {}, NetworkColor::gray), .id = "ESRGAN"});
}

TEST(EsrganSpandrel, UnshuffledTwice) {
  test::expect_agrees_with_spandrel({.spec = small_esrgan(2, {{"unshuffle", "2"}}), .id = "ESRGAN"});
}

TEST(EsrganSpandrel, UnshuffledOnce) {
  test::expect_agrees_with_spandrel({.spec = small_esrgan(1, {{"unshuffle", "4"}}), .id = "ESRGAN"});
}

class EsrganKeys : public testing::TestWithParam<const char*> {};

// What spandrel writes has the old keys, and no options of ours differ but that.
TEST_P(EsrganKeys, SpandrelReadsThem) {
  test::expect_agrees_with_spandrel(
      {.spec = small_esrgan(2, {{"keys", GetParam()}, {"unshuffle", "2"}}), .id = "ESRGAN", .renames = true});
}

INSTANTIATE_TEST_SUITE_P(Spandrel, EsrganKeys, testing::Values("body", "RRDB_trunk"));

TEST(Esrgan, KeysAreThoseOfTheCommunity) {
  const auto some_keys = [](const char* style) {
    std::vector<std::string> keys;
    for (const auto& [name, tensor] : state_dict(*make_network(small_esrgan(4, {{"keys", style}, {"blocks", "1"}})))) {
      if (name.find("RDB2") == name.npos && name.find("RDB3") == name.npos && name.find("rdb2") == name.npos &&
          name.find("rdb3") == name.npos && name.ends_with(".weight")) {
        keys.push_back(name.substr(0, name.size() - 7));
      }
    }
    return keys;
  };
  EXPECT_THAT(some_keys("model"),
              testing::UnorderedElementsAre("model.0", "model.1.sub.0.RDB1.conv1.0", "model.1.sub.0.RDB1.conv2.0",
                                            "model.1.sub.0.RDB1.conv3.0", "model.1.sub.0.RDB1.conv4.0",
                                            "model.1.sub.0.RDB1.conv5.0", "model.1.sub.1", "model.3", "model.6",
                                            "model.8", "model.10"));
  EXPECT_THAT(some_keys("body"),
              testing::UnorderedElementsAre("conv_first", "body.0.rdb1.conv1", "body.0.rdb1.conv2", "body.0.rdb1.conv3",
                                            "body.0.rdb1.conv4", "body.0.rdb1.conv5", "conv_body", "conv_up1",
                                            "conv_up2", "conv_hr", "conv_last"));
  EXPECT_THAT(
      some_keys("RRDB_trunk"),
      testing::UnorderedElementsAre("conv_first", "RRDB_trunk.0.RDB1.conv1", "RRDB_trunk.0.RDB1.conv2",
                                    "RRDB_trunk.0.RDB1.conv3", "RRDB_trunk.0.RDB1.conv4", "RRDB_trunk.0.RDB1.conv5",
                                    "trunk_conv", "upconv1", "upconv2", "HRconv", "conv_last"));
}

TEST(Esrgan, KeepsTheContract) {
  for (Options options : {Options{{"blocks", "2"}}, Options{{"plus", "true"}}, Options{{"unshuffle", "2"}}}) {
    SCOPED_TRACE(testing::PrintToString(options));
    options.insert({{"growth", "4"}, {"blocks", "1"}});
    test::expect_keeps_the_contract(small_esrgan(2, options));
  }
}

TEST(Esrgan, IsRecognisedWithEveryOption) {
  for (const char* keys : {"model", "body", "RRDB_trunk"}) {
    for (const int scale : {1, 2, 4, 8}) {
      for (const char* unshuffle : {"1", "2", "4"}) {
        const Options options{{"keys", keys}, {"unshuffle", unshuffle}, {"growth", "16"}, {"blocks", "3"}};
        test::expect_is_recognised(small_esrgan(scale, options));
        test::expect_is_recognised(small_esrgan(scale, options, NetworkColor::gray));
      }
    }
  }
  test::expect_is_recognised(small_esrgan(4, {{"plus", "true"}, {"blocks", "1"}}));
}

// Of spandrel's modules and the Real-ESRGAN paper's release.
TEST(Esrgan, ParameterCountsArePublished) {
  EXPECT_EQ(test::count_trained({.arch = "esrgan", .scale = 4}), 16'697'987);
  EXPECT_EQ(test::count_trained({.arch = "esrgan", .scale = 2, .options = {{"unshuffle", "2"}}}), 16'703'171);
}

TEST(Esrgan, RefusesWhatCannotBe) {
  for (const Options& options : {Options{{"unshuffle", "3"}}, Options{{"plus", "true"}, {"keys", "body"}}}) {
    EXPECT_THROW(make_network(small_esrgan(2, options)), Error) << testing::PrintToString(options);
  }
}

// He's rule and a factor of a tenth: a standard deviation of 0.1 * sqrt(2 / (9 * channels)).
TEST(Esrgan, DenseBlocksStartSmall) {
  torch::manual_seed(6);
  const auto network = make_network(small_esrgan(4, {{"features", "64"}, {"blocks", "1"}}));
  int checked = 0;
  for (const auto& item : network->named_parameters()) {
    if (item.key().find(".RDB") == std::string::npos || item.value().dim() != 4) continue;
    const double expected = 0.1 * std::sqrt(2.0 / (9 * item.value().size(1)));
    EXPECT_NEAR(item.value().std().item<double>(), expected, 0.03 * expected) << item.key();
    ++checked;
  }
  EXPECT_EQ(checked, 15);
}

}  // namespace
}  // namespace reelgrad
