// The user's own networks in TorchScript, against PyTorch's outputs of the same (torchscript_reference.py).
#include "reelgrad/nn/torchscript.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

class TorchScriptTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace();
    const ProcessResult result = run_process(
        {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/nn/torchscript_reference.py", folder_->path().string()},
        std::chrono::minutes(2));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static NetworkSpec spec(const std::string& name, int scale = 1, int window = 1) {
    return {.arch = "torchscript",
            .scale = scale,
            .window = window,
            .options = {{"file", (*folder_ / (name + ".pt")).string()}}};
  }

  static std::shared_ptr<Network> network(const std::string& name, int scale = 1, int window = 1) {
    return make_network(spec(name, scale, window));
  }

  // PyTorch's input and output, and the state_dict under state.*.
  static std::map<std::string, torch::Tensor> reference(const std::string& name) {
    const SafetensorsFile file = read_safetensors(*folder_ / (name + ".safetensors"));
    return {file.tensors.begin(), file.tensors.end()};
  }

  static std::string refusal(const NetworkSpec& spec) {
    try {
      make_network(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr("model.file: "), testing::Not(HasSubstr("Exception raised from"))));
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  inline static std::optional<test::TemporaryFolder> folder_;
};

struct Taken {
  std::string name;
  int scale = 1, window = 1;
};

const std::vector<Taken> kTaken{{"sequential", 2}, {"residual", 2}, {"sized"},       {"inplace"},
                                {"batchnorm"},     {"dropout"},     {"tied"},        {"window", 1, 3},
                                {"half-size"},     {"pooled"},      {"fixed-weight"}};

TEST_F(TorchScriptTest, ForwardIsPyTorchs) {
  const torch::NoGradGuard no_grad;
  for (const Taken& taken : kTaken) {
    SCOPED_TRACE(taken.name);
    const auto ours = network(taken.name, taken.scale, taken.window);
    ours->eval();
    const auto expected = reference(taken.name);
    const torch::Tensor output = ours->forward(expected.at("input"));
    EXPECT_LT((output - expected.at("output")).abs().max().item<double>(), 1e-6);
    EXPECT_EQ(ours->info().scale, taken.scale);
    EXPECT_EQ(ours->info().window, taken.window);
  }
}

TEST_F(TorchScriptTest, TensorsHaveTheUsersNames) {
  for (const Taken& taken : kTaken) {
    if (taken.name == "tied") continue;
    SCOPED_TRACE(taken.name);
    std::map<std::string, torch::Tensor> expected;
    for (const auto& [name, tensor] : reference(taken.name)) {
      if (name.starts_with("state.")) expected[name.substr(6)] = tensor;
    }
    const NamedTensors state = state_dict(*network(taken.name, taken.scale, taken.window));
    EXPECT_EQ(state.size(), expected.size());
    for (const auto& [name, tensor] : state) {
      ASSERT_TRUE(expected.contains(name)) << name;
      EXPECT_TRUE(torch::equal(tensor, expected[name])) << name;
    }
  }
}

TEST_F(TorchScriptTest, TheOneSizeThatAScriptTakesIsFound) {
  const NetworkSpec alone = torchscript_spec((*folder_ / "fixed.pt").string());
  EXPECT_EQ(alone.scale, 1);
  const NetworkInfo info = make_network(alone)->info();
  EXPECT_EQ(info.fixed_px, 96);
  EXPECT_EQ(info.size_multiple, 96);
  EXPECT_EQ(network("sequential", 2)->info().fixed_px, 0);
}

TEST_F(TorchScriptTest, AScriptSaysThatItRestoresAllFrames) {
  const torch::NoGradGuard no_grad;
  const NetworkSpec alone = torchscript_spec((*folder_ / "all-frames.pt").string());
  EXPECT_EQ(alone.window, 3);
  const auto ours = make_network(alone);
  EXPECT_TRUE(ours->info().all_frames);
  EXPECT_EQ(ours->info().receptive_radius_px, 1);
  EXPECT_EQ(ours->forward(torch::rand({1, 3, 3, 8, 8})).sizes(), (std::vector<std::int64_t>{1, 3, 3, 8, 8}));
  EXPECT_FALSE(network("window", 1, 3)->info().all_frames);
}

TEST_F(TorchScriptTest, ATensorOfTwoNamesIsTrainedOnce) {
  const auto tied = network("tied");
  ASSERT_EQ(tied->parameters().size(), 2U);
  EXPECT_EQ(tied->named_parameters().keys(), (std::vector<std::string>{"first.weight", "first.bias"}));
}

TEST_F(TorchScriptTest, WhatNeedsNoGradientIsNotTrained) {
  const auto ours = network("fixed-weight");
  EXPECT_EQ(ours->named_parameters().keys(), (std::vector<std::string>{"0.bias", "1.weight", "1.bias"}));
  EXPECT_EQ(ours->named_buffers().keys(), (std::vector<std::string>{"0.weight"}));
}

TEST_F(TorchScriptTest, HalfPrecisionWeightsAreTrainedInFloat32) {
  for (const torch::Tensor& parameter : network("half-precision")->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), torch::kFloat32);
  }
}

TEST_F(TorchScriptTest, WeightsAndTypeReachTheScript) {
  const torch::NoGradGuard no_grad;
  const auto ours = network("sequential", 2);
  ours->to(torch::kFloat64);
  const torch::Tensor input = torch::rand({1, 3, 8, 8}, torch::kFloat64);
  const torch::Tensor before = ours->forward(input);
  EXPECT_EQ(before.scalar_type(), torch::kFloat64);
  for (torch::Tensor& parameter : ours->parameters()) parameter.zero_();
  EXPECT_EQ(ours->forward(input).abs().max().item<double>(), 0);
}

TEST_F(TorchScriptTest, TrainAndEvalReachTheScript) {
  const torch::NoGradGuard no_grad;
  const auto ours = network("dropout");
  const torch::Tensor input = torch::rand({1, 3, 16, 16});
  EXPECT_FALSE(torch::equal(ours->forward(input), ours->forward(input)));
  ours->eval();
  EXPECT_TRUE(torch::equal(ours->forward(input), ours->forward(input)));
}

TEST_F(TorchScriptTest, EveryCallGivesTheSameBits) {
  // The executor of TorchScript would change the graph after its first runs.
  const auto ours = network("residual", 2);
  const torch::Tensor input = torch::rand({2, 3, 16, 16});
  Tensors first;
  for (int run = 0; run < 4; ++run) {
    const Tensors gradients = torch::autograd::grad({ours->forward(input).square().mean()}, ours->parameters());
    if (run == 0) first = gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(torch::equal(gradients[i], first[i]));
  }
}

// Each child of the top level, and each of an nn.Sequential, is a segment: but an in-place activation belongs to what
// it changes, a buffer must be changed once only, and numbers do not pass from one segment to the next.
TEST_F(TorchScriptTest, SegmentsAreTheChildren) {
  const std::map<std::string, std::size_t> expected{
      {"sequential", 4}, {"residual", 5}, {"inplace", 2}, {"dropout", 3},   {"batchnorm", 2},   {"tied", 2},
      {"sized", 2},      {"window", 1},   {"pooled", 1},  {"half-size", 3}, {"fixed-weight", 2}};
  for (const Taken& taken : kTaken) {
    EXPECT_EQ(network(taken.name, taken.scale, taken.window)->segments().size(), expected.at(taken.name)) << taken.name;
  }
}

TEST_F(TorchScriptTest, SegmentsOneAfterAnotherAreForward) {
  for (const Taken& taken : kTaken) {
    SCOPED_TRACE(taken.name);
    const auto ours = network(taken.name, taken.scale, taken.window);
    ours->eval();
    const torch::Tensor input = reference(taken.name).at("input");
    Tensors values{input};
    for (const NetworkSegment& segment : ours->segments()) values = segment(values);
    ASSERT_EQ(values.size(), 1U);
    const torch::Tensor whole = ours->forward(input);
    EXPECT_TRUE(torch::equal(values[0], whole));
    const Tensors a = torch::autograd::grad({values[0].square().sum()}, ours->parameters());
    const Tensors b = torch::autograd::grad({whole.square().sum()}, ours->parameters());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i]));
  }
}

TEST_F(TorchScriptTest, SizesAreMeasured) {
  // Two, four, three and one 3x3 convolutions at input size.
  EXPECT_EQ(network("sequential", 2)->info().receptive_radius_px, 2);
  EXPECT_EQ(network("residual", 2)->info().receptive_radius_px, 4);
  EXPECT_EQ(network("sized")->info().receptive_radius_px, 3);
  EXPECT_EQ(network("window", 1, 3)->info().receptive_radius_px, 1);
  EXPECT_EQ(network("sequential", 2)->info().size_multiple, 1);
  // At stride 2: one pixel of the first convolution, one cell of two pixels of the second; at most a cell more.
  const NetworkInfo half = network("half-size")->info();
  EXPECT_EQ(half.size_multiple, 2);
  EXPECT_GE(half.receptive_radius_px, 3);
  EXPECT_LE(half.receptive_radius_px, 5);
  EXPECT_EQ(network("pooled")->info().receptive_radius_px, 64);  // all of it: the largest overlap that is tried

  NetworkSpec given = spec("sequential", 2);
  given.options["size_multiple"] = "4";
  given.options["receptive_radius_px"] = "7";
  const auto ours = make_network(given);
  EXPECT_EQ(ours->info().size_multiple, 4);
  EXPECT_EQ(ours->info().receptive_radius_px, 7);
  EXPECT_EQ(measured_spec(spec("sequential", 2), *ours).options.at("receptive_radius_px"), "7");
}

TEST_F(TorchScriptTest, RefusesWhatIsNoTorchScript) {
  for (const char* name : {"text", "state-dict", "old-state-dict", "gone"}) {
    EXPECT_THAT(refusal(spec(name)), AllOf(HasSubstr("is not a TorchScript file"), HasSubstr("torch.jit.script"),
                                           testing::Not(HasSubstr("PytorchStreamReader"))))
        << name;
  }
  EXPECT_THAT(refusal(spec("state-dict")), HasSubstr("it holds what torch.save writes: weights"));
}

TEST_F(TorchScriptTest, RefusesOtherShapes) {
  EXPECT_THAT(refusal(spec("sequential", 3)),
              AllOf(HasSubstr("model.scale = 3"), HasSubstr("[1, 3, 128, 384]"), HasSubstr("[1, 3, 192, 576]")));
  EXPECT_THAT(refusal(spec("gray")), HasSubstr("takes 1 channel: set data.color to \"gray\""));
  EXPECT_THAT(refusal(spec("window")), HasSubstr("set data.window = 3"));
  EXPECT_THAT(refusal(spec("two-inputs")), HasSubstr("one tensor in, one tensor out"));
}

TEST_F(TorchScriptTest, RefusesWhatCannotMoveOrTrain) {
  EXPECT_THAT(refusal(spec("device")),
              AllOf(HasSubstr("a device written down"), HasSubstr("torchscript_reference.py:")));
  EXPECT_THAT(refusal(spec("traced-constant")),
              AllOf(HasSubstr("a tensor written down"), HasSubstr("register_buffer")));
  EXPECT_THAT(refusal(spec("loose-tensor")), AllOf(HasSubstr("offset"), HasSubstr("register_buffer")));
  EXPECT_THAT(refusal(spec("float32")), AllOf(HasSubstr("a number type written down"), HasSubstr("x.dtype")));
  EXPECT_THAT(refusal(spec("frozen")), HasSubstr("torch.jit.freeze"));
}

class TorchScriptModelTest : public TorchScriptTest {
 protected:
  void save(const fs::path& file) const {
    write_safetensors(file, state_dict(*network("sequential", 2)), model_metadata(spec("sequential", 2)));
  }
  void put_network(const fs::path& file, const std::string& name = "sequential") const {
    fs::create_directories(file.parent_path());
    fs::copy_file(*folder_ / (name + ".pt"), file, fs::copy_options::overwrite_existing);
  }
  static std::string failure(const fs::path& file) {
    try {
      load_model(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      return error.what();
    }
    return {};
  }

  test::TemporaryFolder models_;
};

TEST_F(TorchScriptModelTest, AModelFindsItsNetwork) {
  const auto expected = reference("sequential");
  const fs::path beside = models_ / "a" / "net.safetensors",
                 in_run = models_ / "b" / "checkpoints" / "step-1" / "m.safetensors";
  fs::create_directories(in_run.parent_path());
  put_network(models_ / "a" / "net.pt");
  put_network(models_ / "b" / "network.pt");
  for (const fs::path& file : {beside, in_run}) {
    save(file);
    const Model model = load_model(file);
    EXPECT_EQ(model.spec.arch, "torchscript");
    const torch::NoGradGuard no_grad;
    EXPECT_LT((model.network->forward(expected.at("input")) - expected.at("output")).abs().max().item<double>(), 1e-6);
  }
}

TEST_F(TorchScriptModelTest, AModelWithoutItsNetworkSaysWhatIsMissing) {
  const fs::path file = models_ / "net.safetensors";
  save(file);
  EXPECT_THAT(failure(file), AllOf(HasSubstr("network.pt"), HasSubstr("was not found")));
  put_network(models_ / "network.pt", "residual");
  EXPECT_THAT(failure(file), HasSubstr("network.pt (which is another one)"));
}

TEST_F(TorchScriptModelTest, TheMetadataHoldsNoPath) {
  const std::string metadata = model_metadata(spec("sequential", 2)).at("reelgrad");
  EXPECT_THAT(metadata, AllOf(HasSubstr("\"file_xxh3_128\""), testing::Not(HasSubstr(folder_->path().string()))));
}

}  // namespace
}  // namespace reelgrad
