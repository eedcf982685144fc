#include "reelgrad/onnx/onnx_model.h"

#include <fmt/format.h>
#include <onnx.pb.h>

#include <bit>
#include <cerrno>
#include <fstream>
#include <limits>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"

namespace reelgrad::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int32_t>::max();  // of a protobuf message

// Numbers of the standard.
enum AttributeType { kFloat = 1, kInt = 2, kString = 3, kInts = 7 };

void fill(proto::Attribute& out, const Attribute& attribute) {
  out.set_name(attribute.name);
  if (const auto* number = std::get_if<std::int64_t>(&attribute.value)) {
    out.set_type(kInt);
    out.set_i(*number);
  } else if (const auto* real = std::get_if<float>(&attribute.value)) {
    out.set_type(kFloat);
    out.set_f(*real);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    out.set_type(kString);
    out.set_s(*text);
  } else {
    out.set_type(kInts);
    for (const std::int64_t item : std::get<std::vector<std::int64_t>>(attribute.value)) out.add_ints(item);
  }
}

void fill(proto::Node& out, const Node& node) {
  for (const std::string& name : node.inputs) out.add_input(name);
  for (const std::string& name : node.outputs) out.add_output(name);
  out.set_name(node.outputs.front());
  out.set_op_type(node.op);
  for (const Attribute& attribute : node.attributes) fill(*out.add_attribute(), attribute);
}

void fill(proto::Tensor& out, const Tensor& tensor) {
  out.set_name(tensor.name);
  out.set_data_type(static_cast<int>(tensor.type));
  for (const std::int64_t size : tensor.dims) out.add_dims(size);
  out.set_raw_data(tensor.bytes.data(), tensor.bytes.size());
}

void fill(proto::ValueInfo& out, const Port& port) {
  out.set_name(port.name);
  proto::TensorType& type = *out.mutable_type()->mutable_tensor_type();
  type.set_elem_type(static_cast<int>(port.type));
  for (const auto& dim : port.dims) {
    proto::Dimension& size = *type.mutable_shape()->add_dim();
    if (const auto* number = std::get_if<std::int64_t>(&dim)) {
      size.set_dim_value(*number);
    } else {
      size.set_dim_param(std::get<std::string>(dim));
    }
  }
}

// Opset 19 came with version 9 of the format around it.
int ir_version(int opset) {
  return opset < 19 ? 8 : 9;
}

void fill(proto::Model& out, const Model& model) {
  out.set_ir_version(ir_version(model.opset));
  out.set_producer_name("reelgrad");
  out.add_opset_import()->set_version(model.opset);
  for (const auto& [key, value] : model.metadata) {
    proto::StringPair& pair = *out.add_metadata_props();
    pair.set_key(key);
    pair.set_value(value);
  }
  proto::Graph& graph = *out.mutable_graph();
  graph.set_name(model.name);
  for (const Node& node : model.nodes) fill(*graph.add_node(), node);
  for (const Tensor& tensor : model.initializers) fill(*graph.add_initializer(), tensor);
  for (const Port& port : model.inputs) fill(*graph.add_input(), port);
  for (const Port& port : model.outputs) fill(*graph.add_output(), port);
}

[[noreturn]] void refuse_size(const std::filesystem::path& path, std::uint64_t bytes) {
  fail(fmt::format("{}: {} bytes do not fit into an ONNX file, which holds up to 2 GiB (--half takes half)",
                   path.string(), bytes));
}

}  // namespace

void write_model(const std::filesystem::path& path, const Model& model) {
  std::uint64_t weights = 0;
  for (const Tensor& tensor : model.initializers) weights += tensor.bytes.size();
  if (weights > kMostBytes) refuse_size(path, weights);  // before they are copied

  proto::Model message;
  fill(message, model);
  const std::uint64_t bytes = message.ByteSizeLong();
  if (bytes > kMostBytes) refuse_size(path, bytes);

  PendingFile pending(path);
  std::ofstream stream(pending.path(), std::ios::binary);
  const bool written = stream && message.SerializeToOstream(&stream) && stream.flush();
  if (!written) fail(fmt::format("{}: {} bytes could not be written: {}", path.string(), bytes, errno_name(errno)));
  stream.close();
  pending.commit();
}

}  // namespace reelgrad::onnx
