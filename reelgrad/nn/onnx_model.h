// A network as the ONNX format has it, and its file. Free of torch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace reelgrad::onnx {

// Numbers of the standard.
enum class Type {
  float32 = 1,
  uint8 = 2,
  int8 = 3,
  int16 = 5,
  int32 = 6,
  int64 = 7,
  boolean = 9,
  float16 = 10,
  float64 = 11,
  bfloat16 = 16,
};

struct Tensor {
  std::string name;
  Type type = Type::float32;
  std::vector<std::int64_t> dims;
  std::span<const std::byte> bytes;   // back to back, little-endian
  std::shared_ptr<const void> owner;  // keeps them
};

struct Attribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>> value;
};

struct Node {
  std::string op;
  std::vector<std::string> inputs, outputs;  // "": one that is left out
  std::vector<Attribute> attributes;
};

// What goes in or comes out. A size is a number, or the name of what only the picture tells.
struct Port {
  std::string name;
  Type type = Type::float32;
  std::vector<std::variant<std::int64_t, std::string>> dims;
};

inline constexpr int kOldestOpset = 17, kNewestOpset = 20;

struct Model {
  int opset = kOldestOpset;
  std::string name;
  std::vector<Node> nodes;  // each after those whose outputs it takes
  std::vector<Tensor> initializers;
  std::vector<Port> inputs, outputs;
  std::map<std::string, std::string> metadata;
};

// Written atomically, weights straight from where they lie. Throws failed for more than 2 GiB, which readers of
// protobuf do not take.
void write_model(const std::filesystem::path& path, const Model& model);

}  // namespace reelgrad::onnx
