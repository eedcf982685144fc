// The protobuf encoding (https://protobuf.dev/programming-guides/encoding/) of an ONNX ModelProto, whose field numbers
// stand in https://github.com/onnx/onnx/blob/main/onnx/onnx.proto. Written here and not by protobuf's library: weights
// are not copied, and the engine needs no library that a machine may lack.
#include "reelgrad/nn/onnx_model.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <fstream>
#include <limits>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"

namespace reelgrad::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int32_t>::max();  // of a protobuf message

// The bytes of a message, to which fields are appended in order. Large bytes are not copied but referred to.
class ProtoMessage {
 public:
  void add(int field, std::int64_t value) {
    tag(field, kVarint);
    varint(static_cast<std::uint64_t>(value));
  }
  void add(int field, float value) {
    tag(field, kFixed32);
    own(std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
  }
  void add(int field, std::string_view text) {
    tag(field, kLengthDelimited);
    varint(text.size());
    own(text);
  }
  void add(int field, const ProtoMessage& message) {
    tag(field, kLengthDelimited);
    varint(message.bytes());
    for (const Piece& piece : message.pieces_) {
      own(piece.own);
      if (!piece.others.empty()) refer(piece.others);
    }
  }
  void add_referred(int field, std::span<const std::byte> bytes) {
    tag(field, kLengthDelimited);
    varint(bytes.size());
    refer(bytes);
  }

  std::uint64_t bytes() const { return bytes_; }

  void write(std::ostream& stream) const {
    for (const Piece& piece : pieces_) {
      stream.write(piece.own.data(), static_cast<std::streamsize>(piece.own.size()));
      stream.write(reinterpret_cast<const char*>(piece.others.data()),
                   static_cast<std::streamsize>(piece.others.size()));
    }
  }

 private:
  enum WireType { kVarint = 0, kLengthDelimited = 2, kFixed32 = 5 };
  struct Piece {
    std::string own;
    std::span<const std::byte> others;  // after it
  };

  void tag(int field, WireType type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }

  // Seven bits a byte, the lowest first; the highest bit says that more follow.
  void varint(std::uint64_t value) {
    std::string encoded;
    for (; value >= 0x80; value >>= 7) encoded.push_back(static_cast<char>(value | 0x80));
    encoded.push_back(static_cast<char>(value));
    own(encoded);
  }

  void own(std::string_view bytes) {
    if (pieces_.empty() || !pieces_.back().others.empty()) pieces_.emplace_back();
    pieces_.back().own += bytes;
    bytes_ += bytes.size();
  }

  void refer(std::span<const std::byte> bytes) {
    if (pieces_.empty() || !pieces_.back().others.empty()) pieces_.emplace_back();
    pieces_.back().others = bytes;
    bytes_ += bytes.size();
  }

  std::vector<Piece> pieces_;
  std::uint64_t bytes_ = 0;
};

ProtoMessage encoded(const Attribute& attribute) {
  enum Field { kName = 1, kFloat = 2, kInt = 3, kString = 4, kInts = 8, kType = 20 };
  enum AttributeType : std::int64_t { kIsFloat = 1, kIsInt = 2, kIsString = 3, kIsInts = 7 };
  ProtoMessage message;
  message.add(kName, attribute.name);
  if (const auto* number = std::get_if<std::int64_t>(&attribute.value)) {
    message.add(kInt, *number);
    message.add(kType, kIsInt);
  } else if (const auto* real = std::get_if<float>(&attribute.value)) {
    message.add(kFloat, *real);
    message.add(kType, kIsFloat);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    message.add(kString, *text);
    message.add(kType, kIsString);
  } else {
    for (const std::int64_t item : std::get<std::vector<std::int64_t>>(attribute.value)) message.add(kInts, item);
    message.add(kType, kIsInts);
  }
  return message;
}

ProtoMessage encoded(const Node& node) {
  enum Field { kInput = 1, kOutput = 2, kName = 3, kOperation = 4, kAttribute = 5 };
  ProtoMessage message;
  for (const std::string& name : node.inputs) message.add(kInput, name);
  for (const std::string& name : node.outputs) message.add(kOutput, name);
  message.add(kName, node.outputs.front());
  message.add(kOperation, node.op);
  for (const Attribute& attribute : node.attributes) message.add(kAttribute, encoded(attribute));
  return message;
}

ProtoMessage encoded(const Tensor& tensor) {
  enum Field { kDims = 1, kDataType = 2, kName = 8, kRawData = 9 };
  ProtoMessage message;
  for (const std::int64_t size : tensor.dims) message.add(kDims, size);
  message.add(kDataType, static_cast<std::int64_t>(tensor.type));
  message.add(kName, tensor.name);
  message.add_referred(kRawData, tensor.bytes);
  return message;
}

ProtoMessage encoded(const Port& port) {
  enum { kDimValue = 1, kDimParam = 2 };
  enum { kShapeDim = 1 };
  enum { kElementType = 1, kShape = 2 };
  enum { kTensorType = 1 };
  enum { kName = 1, kType = 2 };
  ProtoMessage shape;
  for (const auto& size : port.dims) {
    ProtoMessage dim;
    if (const auto* number = std::get_if<std::int64_t>(&size)) {
      dim.add(kDimValue, *number);
    } else {
      dim.add(kDimParam, std::get<std::string>(size));
    }
    shape.add(kShapeDim, dim);
  }
  ProtoMessage tensor, type, message;
  tensor.add(kElementType, static_cast<std::int64_t>(port.type));
  tensor.add(kShape, shape);
  type.add(kTensorType, tensor);
  message.add(kName, port.name);
  message.add(kType, type);
  return message;
}

ProtoMessage encoded_graph(const Model& model) {
  enum Field { kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12 };
  ProtoMessage message;
  for (const Node& node : model.nodes) message.add(kNode, encoded(node));
  message.add(kName, model.name);
  for (const Tensor& tensor : model.initializers) message.add(kInitializer, encoded(tensor));
  for (const Port& port : model.inputs) message.add(kInput, encoded(port));
  for (const Port& port : model.outputs) message.add(kOutput, encoded(port));
  return message;
}

// Opset 19 came with version 9 of the format around it.
std::int64_t ir_version(int opset) {
  return opset < 19 ? 8 : 9;
}

ProtoMessage encoded(const Model& model) {
  enum Field { kIrVersion = 1, kProducer = 2, kGraph = 7, kOpset = 8, kMetadata = 14 };
  enum { kOpsetVersion = 2 };
  enum { kKey = 1, kValue = 2 };
  ProtoMessage message;
  message.add(kIrVersion, ir_version(model.opset));
  message.add(kProducer, std::string_view("reelgrad"));
  message.add(kGraph, encoded_graph(model));
  ProtoMessage opset;
  opset.add(kOpsetVersion, std::int64_t{model.opset});
  message.add(kOpset, opset);
  for (const auto& [key, value] : model.metadata) {
    ProtoMessage pair;
    pair.add(kKey, key);
    pair.add(kValue, value);
    message.add(kMetadata, pair);
  }
  return message;
}

}  // namespace

void write_model(const std::filesystem::path& path, const Model& model) {
  const ProtoMessage message = encoded(model);
  if (message.bytes() > kMostBytes) {
    fail(fmt::format("{}: {} bytes do not fit into an ONNX file, which holds up to 2 GiB (--half takes half)",
                     path.string(), message.bytes()));
  }
  PendingFile pending(path);
  std::ofstream stream(pending.path(), std::ios::binary);
  message.write(stream);
  stream.close();
  if (!stream) {
    fail(fmt::format("{}: {} bytes could not be written: {}", path.string(), message.bytes(), errno_name(errno)));
  }
  pending.commit();
}

}  // namespace reelgrad::onnx
