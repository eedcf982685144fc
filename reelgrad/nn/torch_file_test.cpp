#include "reelgrad/nn/torch_file.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstring>
#include <optional>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/memory_limit.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/architectures.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// torch_file_reference.py's files, written once.
class TorchFileTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace("torch é");
    const ProcessResult result = run_reference({"write", folder_->path().string()});
    ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static ProcessResult run_reference(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/nn/torch_file_reference.py"});
    return run_process(arguments, std::chrono::minutes(3));
  }

  static std::filesystem::path file(const std::string& name) { return *folder_ / name; }
  static NamedTensors expected(const std::string& name) {
    return read_safetensors(file(name + ".safetensors")).tensors;
  }

  static std::string failure(const std::filesystem::path& path) {
    try {
      read_weights(path);
      ADD_FAILURE() << path << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      EXPECT_THAT(error.what(), HasSubstr(path.filename().string()));
      return error.what();
    }
    return {};
  }

  static std::optional<test::TemporaryFolder> folder_;
};
std::optional<test::TemporaryFolder> TorchFileTest::folder_;

torch::Tensor raw_bits(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? tensor : tensor.contiguous().view({-1}).view(torch::kUInt8);
}

void expect_same_bits(const NamedTensors& found, const NamedTensors& expected) {
  const std::map<std::string, torch::Tensor> by_name(found.begin(), found.end());
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(by_name.contains(name)) << name;
    const torch::Tensor& ours = by_name.at(name);
    EXPECT_EQ(ours.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(ours.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(torch::equal(raw_bits(ours), raw_bits(tensor))) << name;
  }
}

TEST_F(TorchFileTest, ReadsEveryKindOfTensorOfEveryFormatBitForBit) {
  for (const std::string format : {"zip", "old"}) {
    for (const std::string protocol : {"2", "3", "4", "5"}) {
      SCOPED_TRACE(format + protocol);
      const WeightsFile read = read_torch_file(file(format + protocol + ".pth"));
      expect_same_bits(read.tensors, expected("expected"));
      EXPECT_THAT(read.notes, IsEmpty());
      EXPECT_THAT(read.warnings, IsEmpty());
      EXPECT_EQ(read.tensors.front().first, "whole");  // the file's order
    }
  }
}

TEST_F(TorchFileTest, TensorsAreViewsOfTheFileAsTheyWere) {
  const WeightsFile read = read_torch_file(file("zip2.pth"));
  const std::map<std::string, torch::Tensor> tensors(read.tensors.begin(), read.tensors.end());
  EXPECT_EQ(tensors.at("tied").data_ptr(), tensors.at("whole").data_ptr());
  EXPECT_EQ(tensors.at("strided").data_ptr(), tensors.at("whole").data_ptr());
  EXPECT_EQ(tensors.at("strided").strides(), torch::IntArrayRef({1, 6}));
  EXPECT_EQ(tensors.at("repeated").strides(), torch::IntArrayRef({0, 1}));
  const std::string before = read_file(file("zip2.pth"));
  tensors.at("whole").zero_();
  EXPECT_EQ(read_file(file("zip2.pth")), before);
}

TEST_F(TorchFileTest, FindsTheWeightsInEveryWrapping) {
  for (const std::string name : {"bare",
                                 "ordered",
                                 "params",
                                 "params_ema",
                                 "params-ema",
                                 "state_dict",
                                 "model_state_dict",
                                 "model",
                                 "generator",
                                 "g",
                                 "twice",
                                 "unknown",
                                 "module",
                                 "compiled",
                                 "both",
                                 "average",
                                 "gan",
                                 "generator_prefix",
                                 "lightning",
                                 "scalars"}) {
    for (const std::string format : {"", "_old"}) {
      SCOPED_TRACE(name + format);
      expect_same_bits(read_torch_file(file("wrapping_" + name + format + ".pth")).tensors,
                       expected("expected_compact"));
    }
  }
}

TEST_F(TorchFileTest, SaysWhatItChose) {
  const auto notes = [](const std::string& name) { return read_torch_file(file("wrapping_" + name + ".pth")).notes; };
  EXPECT_THAT(notes("params_ema"), Contains("the weights are those of \"params_ema\"; beside it: params"));
  EXPECT_THAT(notes("twice"),
              testing::ElementsAre("the weights are those of \"model\"", "the weights are those of \"state_dict\""));
  EXPECT_THAT(notes("gan"), Contains(HasSubstr("the 8 below \"netG.\" are taken; 1 others are not")));
  EXPECT_THAT(notes("scalars"), Contains("passed over, no tensors: none"));
  EXPECT_THAT(notes("bare"), IsEmpty());
}

TEST_F(TorchFileTest, KeepsWhatStandsBesideTheWeights) {
  const auto scalars = read_torch_file(file("wrapping_scalars.pth")).metadata;
  EXPECT_EQ(scalars, (std::map<std::string, std::string>{{"pro", "1"}, {"name", "é"}}));
  for (const char* name : {"objects.pth", "objects_old.pth"}) {
    const WeightsFile read = read_torch_file(file(name));
    expect_same_bits(read.tensors, expected("expected_compact"));
    EXPECT_EQ(read.metadata.at("iter"), "5000");
    EXPECT_EQ(read.metadata.at("note"), "é");
    EXPECT_EQ(read.metadata.at("fast"), "true");
    EXPECT_EQ(read.metadata.size(), 4U);  // iter, scale, note, fast: no object
  }
}

TEST_F(TorchFileTest, NothingOfAMaliciousFileRuns) {
  for (const std::string name : {"system", "exec", "beside", "instead", "key", "nested", "open"}) {
    for (const std::string format : {"", "_old"}) {
      EXPECT_THAT(failure(file("malicious_" + name + format + ".pth")),
                  AllOf(HasSubstr("refused"), HasSubstr("would call")))
          << name << format;
    }
  }
  // The name and its letters' case change nothing.
  for (const char* name : {"a.safetensors", "b.SAFETENSORS", "c.Pth", "d"}) {
    std::filesystem::copy_file(file("malicious_system.pth"), file(name));
    EXPECT_THAT(failure(file(name)), HasSubstr("refused"));
  }
  // A function that no list knows is not called either: it stays a value that nobody looks at.
  for (const std::string format : {"", "_old"}) {
    expect_same_bits(read_torch_file(file("malicious_unlisted" + format + ".pth")).tensors,
                     expected("expected_compact"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder_->path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("marker")) << entry.path();
  }
}

TEST_F(TorchFileTest, SaysWhatIsNoFileOfWeights) {
  EXPECT_THAT(failure(file("whole.pth")), AllOf(HasSubstr("Sequential"), HasSubstr("state_dict()")));
  EXPECT_THAT(failure(file("whole_old.pth")),
              AllOf(HasSubstr("\"model\""), HasSubstr("Linear"), HasSubstr("state_dict()")));
  EXPECT_THAT(failure(file("list.pth")), HasSubstr("no dict of weights"));
  EXPECT_THAT(failure(file("nothing.pth")), AllOf(HasSubstr("no weights found"), HasSubstr("epoch, notes")));
  EXPECT_THAT(failure(file("pickle.pth")), HasSubstr("none of torch.save"));
  EXPECT_THAT(failure(file("other.pth")), HasSubstr("no data.pkl"));
  EXPECT_THAT(failure(file("big_endian.pth")), AllOf(HasSubstr("byte order"), HasSubstr("big")));
  EXPECT_THAT(failure(file("deflated.pth")), HasSubstr("compressed"));
  EXPECT_THAT(failure(file("short.pth")), AllOf(HasSubstr("storage \"0\""), HasSubstr("should have")));
  EXPECT_THAT(failure(file("script.pth")), AllOf(HasSubstr("TorchScript"), HasSubstr("model.file")));
  EXPECT_THAT(failure(folder_->write("text.pth", "hello")), HasSubstr("neither"));
  EXPECT_THAT(failure(folder_->write("empty.pth", "")), HasSubstr("0 bytes"));
  EXPECT_THAT(failure(file("none.pth")), HasSubstr("no such file"));
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(failure(folder_->write("tar.pth", tar)), AllOf(HasSubstr("tar"), HasSubstr("0.1.10")));
}

TEST_F(TorchFileTest, UnalignedStoragesAreCopied) {
  expect_same_bits(read_torch_file(file("unaligned.pth")).tensors, expected("expected_compact"));
}

TEST_F(TorchFileTest, ChangedBytesOfAWeightAreWarnedOf) {
  std::string bytes = read_file(file("small.pth"));
  const torch::Tensor first = expected("expected_compact").front().second;
  const std::string content(static_cast<const char*>(first.data_ptr()), first.nbytes());
  const std::size_t at = bytes.find(content);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] ^= 1;
  EXPECT_THAT(read_torch_file(folder_->write("changed.pth", bytes)).warnings, Contains(HasSubstr("checksum")));
}

TEST_F(TorchFileTest, KnowsAFileByItsContent) {
  std::filesystem::copy_file(file("expected_compact.safetensors"), file("safe.pth"));
  const WeightsFile safe = read_weights(file("safe.pth"));
  expect_same_bits(safe.tensors, expected("expected_compact"));
  EXPECT_THAT(safe.notes, Contains(HasSubstr("safetensors")));
  std::filesystem::copy_file(file("small.pth"), file("torch.safetensors"));
  expect_same_bits(read_weights(file("torch.safetensors")).tensors, expected("expected_compact"));
}

TEST_F(TorchFileTest, AModelComesFromAnyOfThem) {
  for (const char* name : {"wrapping_params_ema.pth", "wrapping_lightning_old.pth"}) {
    const Model model = load_model(file(name));
    EXPECT_EQ(model.spec.arch, "compact");
    EXPECT_EQ(model.spec.scale, 2);
    const NamedTensors state = state_dict(*model.network);
    expect_same_bits(state, expected("expected_compact"));
  }
}

TEST_F(TorchFileTest, ATorchScriptFileAloneIsAModel) {
  const Model model = load_model(file("script.pth"));
  EXPECT_EQ(model.spec.arch, "torchscript");
  EXPECT_EQ(model.spec.scale, 2);
  EXPECT_EQ(model.spec.color, NetworkColor::rgb);
  const NamedTensors pictures = expected("script");
  const std::map<std::string, torch::Tensor> by_name(pictures.begin(), pictures.end());
  const torch::NoGradGuard no_grad;
  EXPECT_LT((model.network->forward(by_name.at("input")) - by_name.at("output")).abs().max().item<double>(), 1e-6);
  try {
    load_model(file("strange_script.pth"));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("strange_script.pth"), HasSubstr("RGB or gray")));
  }
}

TEST_F(TorchFileTest, TorchLoadsWhatIsWritten) {
  NamedTensors tensors = expected("expected");
  tensors.emplace_back("columns", torch::arange(6.0).reshape({2, 3}).t());
  write_torch_file(file("ours.pth"), tensors, {{"note", "é"}});
  write_safetensors(file("ours.safetensors"), tensors);
  const ProcessResult result = run_reference({"check", file("ours.pth").string(), file("ours.safetensors").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  const WeightsFile read = read_weights(file("ours.pth"));
  expect_same_bits(read.tensors, tensors);
  EXPECT_EQ(read.metadata, (std::map<std::string, std::string>{{"note", "é"}}));
  EXPECT_THAT(read.warnings, IsEmpty());
}

TEST_F(TorchFileTest, SpandrelLoadsWhatIsWritten) {
  write_torch_file(file("compact.pth"), expected("expected_compact"),
                   model_metadata({.options = {{"features", "4"}, {"convs", "1"}}}));
  const ProcessResult result =
      run_reference({"spandrel", file("compact.pth").string(), file("expected_compact.safetensors").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
}

TEST_F(TorchFileTest, WhatCannotBeWrittenLeavesNothing) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(write_torch_file(folder / "a.pth", {{"a", torch::ones({1})}, {"a", torch::ones({1})}}), Error);
  EXPECT_THROW(write_torch_file(folder / "a.pth", {{"a", torch::ones({1}, torch::kUInt16)}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(write_torch_file(folder / "missing" / "a.pth", {{"a", torch::ones({1})}}), Error);
}

// --- Damage: a sentence or weights, and neither a crash nor memory beyond the file's size ---

class TorchFileDamage : public TorchFileTest {
 protected:
  // Whether the damaged bytes are refused.
  static bool is_refused(const std::string& bytes) {
    std::filesystem::remove(file("damaged.pth"));  // some file systems flush a file that is written over
    const std::filesystem::path path = folder_->write("damaged.pth", bytes);
    try {
      std::uint64_t total = 0;
      for (const auto& [name, tensor] : read_weights(path).tensors) {
        total += tensor.nbytes();
        tensor.contiguous().view({-1}).sum();  // every byte can be read
      }
      EXPECT_LE(total, 1U << 20);
      return false;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("damaged.pth"));
      return true;
    }
  }
};

TEST_F(TorchFileDamage, EveryTruncationIsRefused) {
  for (const char* name : {"small.pth", "small_old.pth"}) {
    const std::string good = read_file(file(name));
    for (std::size_t length = 0; length < good.size(); ++length)
      EXPECT_TRUE(is_refused(good.substr(0, length))) << length;
  }
}

TEST_F(TorchFileDamage, EveryFlippedByteIsSurvived) {
  for (const char* name : {"small.pth", "small_old.pth"}) {
    const std::string good = read_file(file(name));
    int refused = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
      for (const char flip : {'\x01', '\xff'}) {
        std::string bytes = good;
        bytes[at] ^= flip;
        refused += is_refused(bytes);
      }
    }
    EXPECT_GT(refused, 1000) << name;
  }
}

std::string torch_archive(const std::string& pickle, const std::string& storage) {
  std::ostringstream out;
  ZipWriter writer(out);
  writer.add("archive/data.pkl", std::as_bytes(std::span(pickle)));
  writer.add("archive/data/0", std::as_bytes(std::span(storage)));
  writer.finish();
  return std::move(out).str();
}

// The dict {"a": a tensor}; numbers as pickled.
std::string tensor_pickle(const std::string& numel, const std::string& offset, const std::string& sizes,
                          const std::string& strides, const std::string& type = "FloatStorage") {
  return std::string("\x80\x02}") + "U\x01" + "a" + "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\n" + type +
         "\nU\x01" + "0U\x03" + "cpu" + numel + "tQ" + offset + sizes + strides + "\x89NtRs.";
}

std::string packed_long(std::uint64_t number) {
  return "\x8a\x08" + std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

TEST_F(TorchFileTest, ReadsWhatOlderVersionsWrote) {
  const std::string four = "K\x04\x85", one = "K\x01\x85";
  const torch::Tensor expected = torch::tensor({1.f, 2.f, 3.f, 4.f});
  const std::string storage(static_cast<const char*>(expected.data_ptr()), expected.nbytes());
  for (const auto& [part, older] : std::vector<std::pair<std::string, std::string>>{
           {"ctorch\nFloat", "ctorch.cuda\nFloat"}, {"_rebuild_tensor_v2", "_rebuild_tensor"}}) {
    std::string pickle = tensor_pickle("K\x04", std::string("K\0", 2), four, one);
    pickle.replace(pickle.find(part), part.size(), older);
    const auto path =
        folder_->write("older.pth", torch_archive(pickle, storage));  // without a record of the byte order
    expect_same_bits(read_weights(path).tensors, {{"a", expected}});
  }
}

TEST_F(TorchFileDamage, TensorsThatDoNotFitTheirStorageAreRefused) {
  const auto refusal = [&](const std::string& pickle) {
    std::string message;
    const auto path = folder_->write("tensor.pth", torch_archive(pickle, std::string(16, '\0')));
    test::expect_cheap([&] { message = failure(path); });
    return message;
  };
  const std::string four = "K\x04", zero("K\0", 2), one = "K\x01", two = "K\x02";
  const std::string huge = packed_long(1ULL << 62), negative = packed_long(~0ULL);
  EXPECT_EQ(
      read_weights(folder_->write("tensor.pth", torch_archive(tensor_pickle(four, zero, four + "\x85", one + "\x85"),
                                                              std::string(16, '\0'))))
          .tensors.front()
          .second.numel(),
      4);
  EXPECT_THAT(refusal(tensor_pickle(four, one, four + "\x85", one + "\x85")), HasSubstr("beyond its storage of 4"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, four + "\x85", two + "\x85")), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal(tensor_pickle(four, huge, one + "\x85", one + "\x85")), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, huge + huge + "\x86", zero + zero + "\x86")),
              HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, huge + "\x85", zero + "\x85")), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, huge + huge + zero + "\x87", one + one + one + "\x87")),
              HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, packed_long(1 << 30) + "\x85", zero + "\x85")), HasSubstr("repeat"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, negative + "\x85", one + "\x85")), HasSubstr("a size that is none"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, four + "\x85", negative + "\x85")), HasSubstr("a size that is none"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, four + "\x85", one + one + "\x86")), HasSubstr("without its strides"));
  EXPECT_THAT(refusal(tensor_pickle(two, zero, two + "\x85", one + "\x85")), HasSubstr("16 bytes, but should have 8"));
  EXPECT_THAT(refusal(tensor_pickle(huge, zero, two + "\x85", one + "\x85")), HasSubstr("no possible size"));
  EXPECT_THAT(refusal(tensor_pickle(four, zero, four + "\x85", one + "\x85", "QInt8Storage")),
              HasSubstr("QInt8Storage"));
}

TEST_F(TorchFileDamage, BombsAreRefusedCheaply) {
  // A dict that is in itself, under every key that is looked into; and many dicts that share theirs.
  std::string inside_itself = "\x80\x02}q";
  inside_itself += std::string("\0(", 2);
  for (const char* key : {"params", "state_dict", "model", "net"}) {
    inside_itself += std::string("U") + static_cast<char>(std::strlen(key)) + key + std::string("h\0", 2);
  }
  std::string shared = "\x80\x02]q" + std::string(1, '\0');
  shared += "}q\x01(";
  for (int i = 0; i < 50'000; ++i) shared += "K\x01}";
  shared += "u0}(";
  for (int i = 0; i < 50'000; ++i) shared += "K\x01h\x01";
  for (const std::string& pickle : {inside_itself + "u.", shared + "u."}) {
    const auto path = folder_->write("bomb.pth", torch_archive(pickle, ""));
    test::expect_cheap([&] { EXPECT_THAT(failure(path), HasSubstr("no weights found")); });
  }
}

}  // namespace
}  // namespace reelgrad
