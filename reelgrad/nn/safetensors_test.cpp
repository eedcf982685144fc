#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/memory_limit.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/weights.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  std::filesystem::path file() const { return folder_ / "é x.safetensors"; }

  void write_raw(const std::string& bytes) const {
    std::filesystem::remove(file());  // some file systems flush a file that is written over
    std::ofstream(file(), std::ios::binary) << bytes;
  }

  // A file with this header, its length before it, and `data_bytes` zeros after it.
  static std::string with_header(const std::string& json, std::size_t data_bytes) {
    std::uint64_t length = json.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json + std::string(data_bytes, '\0');
  }

  // The message for these bytes, which must be refused quickly and with little memory.
  std::string refusal(const std::string& bytes) const {
    write_raw(bytes);
    std::string message;
    test::expect_cheap([&] {
      try {
        read_safetensors(file());
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::failed);
        message = error.what();
      }
    });
    EXPECT_THAT(message, HasSubstr("é x.safetensors"));
    return message;
  }

  test::TemporaryFolder folder_;
};

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string raw_length(std::uint64_t length, std::size_t rest) {
  std::string raw(reinterpret_cast<const char*>(&length), sizeof length);
  return raw.append(rest, ' ');
}

NamedTensors every_type() {
  NamedTensors tensors;
  const std::pair<const char*, torch::ScalarType> types[]{
      {"bool", torch::kBool},   {"u8", torch::kUInt8},    {"i8", torch::kInt8},     {"i16", torch::kInt16},
      {"i32", torch::kInt32},   {"i64", torch::kInt64},   {"f16", torch::kFloat16}, {"bf16", torch::kBFloat16},
      {"f32", torch::kFloat32}, {"f64", torch::kFloat64},
  };
  for (const auto& [name, type] : types) tensors.emplace_back(name, torch::arange(5).to(type));
  tensors.emplace_back("scalar", torch::tensor(2.5f));
  tensors.emplace_back("empty", torch::zeros({0, 3}));
  tensors.emplace_back("columns", torch::tensor({{0.f, 3.f}, {1.f, 4.f}, {2.f, 5.f}}).t());  // not contiguous
  return tensors;
}

void expect_equal(const NamedTensors& found, const NamedTensors& expected) {
  const std::map<std::string, torch::Tensor> by_name(found.begin(), found.end());
  ASSERT_EQ(by_name.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_EQ(by_name.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(by_name.at(name), tensor)) << name;
  }
}

TEST_F(SafetensorsTest, IsReadByTheReferenceAndReadsIt) {
  write_safetensors(file(), every_type(), {{"note", "é \"quoted\""}});
  const std::filesystem::path theirs = folder_ / "theirs.safetensors";
  const ProcessResult result =
      run_process({REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/nn/safetensors_reference.py", file().string(),
                   theirs.string()},
                  std::chrono::minutes(2));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const SafetensorsFile read = read_safetensors(theirs);
  EXPECT_EQ(read.metadata, (std::map<std::string, std::string>{{"note", "é \"quoted\""}}));
  expect_equal(read.tensors, every_type());
}

TEST_F(SafetensorsTest, RoundTripKeepsOrderTypesAndMetadata) {
  write_safetensors(file(), every_type(), {{"a", "1"}, {"b", "2"}});
  std::map<std::string, std::string> metadata;
  const std::vector<TensorEntry> entries = read_safetensors_header(file(), &metadata);
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}}));
  ASSERT_EQ(entries.size(), every_type().size());
  EXPECT_EQ(entries[0].name, "bool");
  EXPECT_EQ(entries[7].dtype, "BF16");
  EXPECT_EQ(entries.back().shape, (std::vector<std::int64_t>{2, 3}));
  const NamedTensors read = read_safetensors(file()).tensors;
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i].first, every_type()[i].first);
  expect_equal(read, every_type());
}

TEST_F(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  write_raw(with_header(R"({"e":)" + entry("F32", "[0]", "[0,0]") + "}", 0));
  EXPECT_EQ(read_safetensors(file()).tensors.front().second.numel(), 0);

  // Unaligned but without a hole: the float begins at byte 1.
  write_raw(with_header(R"({"u":)" + entry("U8", "[1]", "[0,1]") + R"(,"f":)" + entry("F32", "[1]", "[1,5]") + "}", 5));
  EXPECT_EQ(read_safetensors(file()).tensors[1].second.item<float>(), 0);

  write_raw(with_header(R"({"__metadata__":{"only":"this"}}  )", 0));
  const SafetensorsFile read = read_safetensors(file());
  EXPECT_TRUE(read.tensors.empty());
  EXPECT_EQ(read.metadata.at("only"), "this");
}

TEST_F(SafetensorsTest, RefusesABadLength) {
  EXPECT_THAT(refusal(raw_length(~std::uint64_t{0}, 32)), HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal(raw_length(40, 32)), HasSubstr("header length 40"));  // the whole file's size
  EXPECT_THAT(refusal(raw_length(0, 32)), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(raw_length(100'000'001, 32)), HasSubstr("above 100000000"));
  EXPECT_THAT(refusal(raw_length(100'000'000, 32)), HasSubstr("header length 100000000"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(refusal(""), HasSubstr("0 bytes"));
}

TEST_F(SafetensorsTest, RefusesABadHeader) {
  const std::string good = entry("F32", "[1]", "[0,4]");
  EXPECT_THAT(refusal(with_header("{\"a\": nonsense}", 4)), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(with_header(" {\"a\":" + good + "}", 4)), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(with_header("[]", 0)), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + good + ",\"a\":" + good + "}", 4)), HasSubstr("\"a\": a duplicate key"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + good + ",\"\\u0061\":" + good + "}", 4)), HasSubstr("duplicate key"));
  EXPECT_THAT(refusal(with_header(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4)),
              HasSubstr("duplicate key \"dtype\""));
  EXPECT_THAT(refusal(with_header(R"({"__metadata__":{"k":"1","k":"2"}})", 0)), HasSubstr("duplicate key \"k\""));
  EXPECT_THAT(refusal(with_header(R"({"__metadata__":{"k":1}})", 0)), HasSubstr("a number where none is allowed"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F33", "[1]", "[0,4]") + "}", 4)), HasSubstr("dtype \"F33\""));
  EXPECT_THAT(refusal(with_header(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4)), HasSubstr("dtype is missing"));
  EXPECT_THAT(refusal(with_header(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4)), HasSubstr("shape is missing"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F32", "[1]", "[0]") + "}", 4)), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F32", "[-1]", "[0,4]") + "}", 4)), HasSubstr("-1 is negative"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F32", "[1.0]", "[0,4]") + "}", 4)), HasSubstr("1.0"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F32", "[[1]]", "[0,4]") + "}", 4)), HasSubstr("list"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F32", "null", "[0,4]") + "}", 4)), HasSubstr("null"));
  std::string many = "[1";
  for (int i = 0; i < 2'000'000; ++i) many += ",1";
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F32", many + "]", "[0,4]") + "}", 4)), HasSubstr("more than 32"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + entry("F32", "[1]", many + "]") + "}", 4)), HasSubstr("more than 32"));
  EXPECT_THAT(refusal(with_header(std::string(100'000, '['), 0)), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(with_header("{\"a\":" + std::string(100'000, '['), 0)), HasSubstr("list"));
}

TEST_F(SafetensorsTest, RefusesABadLayout) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return "{\"a\":" + entry("F32", shape, offsets) + "}";
  };
  EXPECT_THAT(refusal(with_header(one("[1]", "[4,0]"), 4)), HasSubstr("begin after end"));
  EXPECT_THAT(refusal(with_header(one("[2]", "[0,8]"), 4)), HasSubstr("beyond the file's 4 bytes"));
  EXPECT_THAT(refusal(with_header(one("[1]", "[0,18446744073709551615]"), 4)), HasSubstr("beyond"));
  EXPECT_THAT(refusal(with_header(one("[2]", "[0,4]"), 4)), HasSubstr("takes 8"));
  EXPECT_THAT(refusal(with_header(one("[1]", "[0,0]"), 0)), HasSubstr("takes 4"));
  EXPECT_THAT(refusal(with_header(one("[4294967296,4294967296]", "[0,0]"), 0)), HasSubstr("overflows"));
  EXPECT_THAT(refusal(with_header(one("[9223372036854775808,0]", "[0,0]"), 0)), HasSubstr("overflows"));
  EXPECT_THAT(refusal(with_header(one("[0,4611686018427387904,4611686018427387904]", "[0,0]"), 0)),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal(with_header(one("[1]", "[0,4]"), 5)), HasSubstr("1 bytes after the last tensor"));
  EXPECT_THAT(refusal(with_header(one("[1]", "[4,8]"), 8)), HasSubstr("leaves a hole"));
  EXPECT_THAT(refusal(with_header(
                  "{\"a\":" + entry("F32", "[1]", "[0,4]") + ",\"b\":" + entry("F32", "[1]", "[2,6]") + "}", 6)),
              HasSubstr("overlaps"));
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  write_safetensors(file(), {{"weight", torch::ones({3, 2})}}, {{"note", "text"}});
  const std::string good = read_file(file());
  for (std::size_t length = 0; length < good.size(); ++length) refusal(good.substr(0, length));
}

TEST_F(SafetensorsTest, TensorsAreViewsThatDoNotChangeTheFile) {
  write_safetensors(file(), {{"weight", torch::ones({3, 2})}, {"bias", torch::ones({2})}});
  const std::string before = read_file(file());
  const NamedTensors read = read_safetensors(file()).tensors;
  const auto* weight = static_cast<const char*>(read[0].second.data_ptr());
  EXPECT_EQ(static_cast<const char*>(read[1].second.data_ptr()) - weight, 24);  // as in the file, nothing between
  read[0].second.fill_(7);
  EXPECT_EQ(read_file(file()), before);
  std::filesystem::remove(file());
  EXPECT_EQ(read[0].second.sum().item<float>(), 42);
  EXPECT_EQ(read[1].second.sum().item<float>(), 2);
}

TEST_F(SafetensorsTest, SurvivesRandomFlipsInTheHeader) {
  write_safetensors(file(), {{"weight", torch::ones({3, 2})}, {"bias", torch::ones({2})}}, {{"note", "text"}});
  const std::string good = read_file(file());
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, good.data(), sizeof header_bytes);
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes = good;
    bytes[random() % (sizeof header_bytes + header_bytes)] ^= static_cast<char>(1 + random() % 255);
    write_raw(bytes);
    try {
      for (const auto& [name, tensor] : read_safetensors(file()).tensors) EXPECT_LE(tensor.nbytes(), 32u);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

TEST_F(SafetensorsTest, SaysWhatIsWrongWithThePath) {
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      read_safetensors(path);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(message(folder_ / "none.safetensors"), AllOf(HasSubstr("none.safetensors"), HasSubstr("no such file")));
  EXPECT_THAT(message(folder_.path()), HasSubstr("is not a file"));
}

TEST_F(SafetensorsTest, WritingTwoTensorsOfOneNameIsRefusedAndLeavesNothing) {
  EXPECT_THROW(write_safetensors(file(), {{"a", torch::ones({1})}, {"a", torch::ones({1})}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SafetensorsTest, WritingIntoAMissingFolderIsNamed) {
  try {
    write_safetensors(folder_ / "missing" / "x.safetensors", {{"a", torch::ones({1})}});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("x.safetensors"));
  }
}

}  // namespace
}  // namespace reelgrad
