#include "reelgrad/nn/torchscript.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/torch.h>

#include <set>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/nn/network_probe.h"

namespace reelgrad {
namespace {

constexpr int kFallbackRadius = 64;  // pixels, where the measured one is larger

// What a file is that torch cannot load, from torch's words of it.
std::string_view loading_failure(std::string_view text) {
  // An archive without code, or with a part of one.
  if (text.find("constants.pkl") != std::string_view::npos) {
    return "it holds what torch.save writes: weights or an object of Python, but no network's code";
  }
  if (text.find("zip archive") != std::string_view::npos) return "no archive of torch's, or a damaged one";
  return text.substr(0, text.find('\n'));
}

torch::jit::Module load_script(const std::string& file, const std::string& what) {
  try {
    return torch::jit::load(file, torch::kCPU);
  } catch (const std::exception& error) {
    fail_usage(fmt::format("{} is not a TorchScript file ({}): make one with torch.jit.script(network).save(file)",
                           what, loading_failure(error.what())));
  }
}

void check_signature(const torch::jit::Module& module, const std::string& what) {
  const auto method = module.find_method("forward");
  if (!method) fail_usage(fmt::format("{} has no forward", what));
  const c10::FunctionSchema& schema = method->function().getSchema();
  const auto is_tensor = [](const c10::Argument& argument) {
    return argument.type()->isSubtypeOf(*c10::TensorType::get());
  };
  const auto& arguments = schema.arguments();  // self first
  const auto& returns = schema.returns();
  if (arguments.size() == 2 && is_tensor(arguments[1]) && returns.size() == 1 && is_tensor(returns[0])) return;
  fail_usage(fmt::format("{}: its forward is {}, needed: one tensor in, one tensor out", what, c10::str(schema)));
}

bool is_device(const torch::jit::Node& node) {
  if (node.kind() == c10::aten::device) return true;  // from a string
  return node.kind() == c10::prim::Constant && node.output()->type()->kind() == c10::DeviceObjType::Kind;
}

// A number is no matter: every device takes it.
bool is_tensor(const torch::jit::Node& node) {
  if (node.kind() != c10::prim::Constant) return false;
  const std::optional<c10::IValue> value = torch::jit::toIValue(node.output());
  return value && value->isTensor() && value->toTensor().defined() && value->toTensor().dim() > 0;
}

// " (net.py:12)": the line in the user's file where that is known, else in what TorchScript made of it, or empty.
std::string place_in(const torch::jit::SourceRange& range) {
  const auto place = range.findSourceRangeThatGenerated().value_or(range).file_line_col();
  return place ? fmt::format(" ({}:{})", std::get<0>(*place), std::get<1>(*place)) : "";
}

// A constant may stand where it is used.
std::string place_of(const torch::jit::Node& node) {
  const std::string place = place_in(node.sourceRange());
  return place.empty() && node.hasUses() ? place_in(node.output()->uses().front().user->sourceRange()) : place;
}

// A device written down in the code stays what it is when the network goes to a card, and so does a tensor.
void check_constants(const torch::jit::Block& block, const std::string& what) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (is_device(*node)) {
      fail_usage(
          fmt::format("{} has a device written down in its code{}, which it could not leave: take that of a "
                      "tensor (x.device), and script the network instead of tracing it",
                      what, place_of(*node)));
    }
    if (is_tensor(*node)) {
      fail_usage(
          fmt::format("{} has a tensor written down in its code{}, which could not follow it to a card: make it "
                      "a buffer (register_buffer)",
                      what, place_of(*node)));
    }
    for (const torch::jit::Block* inner : node->blocks()) check_constants(*inner, what);
  }
}

// Tensors that no to() reaches.
void check_attributes(const torch::jit::Module& module, const std::string& what) {
  const auto type = module.type();
  for (std::size_t slot = 0; slot < type->numAttributes(); ++slot) {
    const bool tensor = module._ivalue()->getSlot(slot).isTensor();
    if (!tensor || type->is_parameter(slot) || type->is_buffer(slot)) continue;
    fail_usage(fmt::format("{}: the tensor {} is neither a parameter nor a buffer: make it a buffer (register_buffer)",
                           what, type->getAttributeName(slot)));
  }
  for (const torch::jit::Module& child : module.children()) check_attributes(child, what);
}

void check_trainable(const torch::jit::Module& module, const std::string& what) {
  for (const torch::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) return;
  }
  fail_usage(
      fmt::format("{} has no parameters to train: torch.jit.freeze and torch.jit.optimize_for_inference take "
                  "them out",
                  what));
}

void to_float32(const torch::jit::Module& module) {
  const torch::NoGradGuard no_grad;
  const auto convert = [](torch::Tensor tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(torch::kFloat32));
  };
  for (const torch::Tensor& tensor : module.parameters()) convert(tensor);
  for (const torch::Tensor& tensor : module.buffers()) convert(tensor);
}

using Seen = std::set<const c10::TensorImpl*>;

// Registers in `ours` what the script's module has, and modules like its children: names may hold no dots.
void mirror(const torch::jit::Module& theirs, torch::nn::Module& ours, Seen& seen) {
  for (const auto& parameter : theirs.named_parameters(/*recurse=*/false)) {
    if (!seen.insert(parameter.value.unsafeGetTensorImpl()).second) continue;
    if (parameter.value.requires_grad()) {
      ours.register_parameter(parameter.name, parameter.value);
    } else {
      ours.register_buffer(parameter.name, parameter.value);
    }
  }
  for (const auto& buffer : theirs.named_buffers(/*recurse=*/false)) {
    if (seen.insert(buffer.value.unsafeGetTensorImpl()).second) ours.register_buffer(buffer.name, buffer.value);
  }
  for (const auto& child : theirs.named_children()) {
    mirror(child.value, *ours.register_module(child.name, std::make_shared<torch::nn::Module>()), seen);
  }
}

torch::jit::Module checked(torch::jit::Module module, const std::string& what) {
  check_trainable(module, what);
  check_signature(module, what);
  const std::shared_ptr<torch::jit::Graph> graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  check_constants(*graph->block(), what);
  check_attributes(module, what);
  return module;
}

// Sets the type of all floating tensors for as long as it lives.
class InDouble {
 public:
  explicit InDouble(Network& network) : network_(network) { convert(torch::kFloat64); }
  InDouble(const InDouble&) = delete;
  InDouble& operator=(const InDouble&) = delete;
  ~InDouble() { convert(torch::kFloat32); }

 private:
  void convert(torch::ScalarType type) {
    const torch::NoGradGuard no_grad;
    for (auto& tensor : network_.parameters()) tensor.set_data(tensor.to(type));
    for (auto& tensor : network_.buffers()) {
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(type));
    }
  }

  Network& network_;
};

int radius_of(Network& network, const PictureShape& shape, int size_multiple, const std::string& what) {
  MeasuredRadius measured = measure_receptive_radius(network, shape, size_multiple);
  if (measured.faint) {  // float64 takes seconds
    const InDouble in_double(network);
    measured = measure_receptive_radius(network, shape, size_multiple);
  }
  if (measured.px) return *measured.px;
  log::warning(
      fmt::format("{}: an output pixel depends on more than the {} px around it: tiles overlap by no more, and "
                  "may show seams; model.receptive_radius_px sets another overlap",
                  what, kFallbackRadius));
  return kFallbackRadius;
}

// A bool that the module's class says of itself: `self.all_frames = True`.
bool says_all_frames(const torch::jit::Module& module) {
  return module.hasattr("all_frames") && module.attr("all_frames").isBool() && module.attr("all_frames").toBool();
}

// A number that it says of itself, as `self.window = 5`; `least`, which no smaller one may be, where it does not.
int says_number(const torch::jit::Module& module, const char* name, int least, const std::string& what) {
  if (!module.hasattr(name) || !module.attr(name).isInt()) return least;
  const std::int64_t number = module.attr(name).toInt();
  constexpr std::int64_t kMost = 65536;
  if (number < least || number > kMost) {
    fail_usage(fmt::format("{}: self.{} is {}, allowed: {} to {}", what, name, number, least, kMost));
  }
  return static_cast<int>(number);
}

// Sets what pictures it takes: those of a multiple, or of one size alone. `stated`: the multiple that the options say,
// or 0.
void find_sizes(Network& network, const PictureShape& shape, int stated, const std::string& what, NetworkInfo& info) {
  if (info.fixed_px == 0 && stated == 0) {
    try {
      info.size_multiple = measure_size_multiple(network, shape, what);
      return;
    } catch (const Error&) {
      info.fixed_px = measure_fixed_size(network, shape).value_or(0);
      if (info.fixed_px == 0) throw;
    }
  }
  if (info.fixed_px > 0) {
    check_output_of(network, shape, info.fixed_px, what);
    info.size_multiple = info.fixed_px;
    return;
  }
  check_output(network, shape, stated, what);
}

// By what it makes of a small picture, or of the one size that it takes; nullopt when it takes no such picture.
std::optional<int> scale_for(Network& network, const PictureShape& shape) {
  const torch::NoGradGuard no_grad;
  for (const int side : kUsualSides) {
    std::vector<std::int64_t> sizes{1, shape.channels, side, side};
    if (shape.window > 1) sizes.insert(sizes.begin() + 1, shape.window);
    torch::Tensor output;
    try {
      output = network.forward(torch::rand(sizes));
    } catch (const std::exception&) {
      continue;
    }
    if (shape.all_frames && output.dim() == 5 && output.size(1) == shape.window) output = output.select(1, 0);
    if (output.dim() != 4 || output.size(1) != shape.channels || output.size(2) != output.size(3)) return std::nullopt;
    if (output.size(2) == 0 || output.size(2) % side != 0) return std::nullopt;
    return static_cast<int>(output.size(2) / side);
  }
  return std::nullopt;
}

}  // namespace

TorchScriptNetwork::TorchScriptNetwork(torch::jit::Module module, NetworkInfo info, const std::string& what)
    : module_(checked(std::move(module), what)),
      info_(info),
      forward_(whole_forward(module_)),
      parts_(forward_parts(module_)) {
  to_float32(module_);
  Seen seen;
  mirror(module_, *this, seen);
  train(true);
}

torch::Tensor TorchScriptNetwork::forward(torch::Tensor input) {
  return forward_(module_, {input}).at(0);
}

std::vector<NetworkSegment> TorchScriptNetwork::segments() {
  std::vector<NetworkSegment> segments;
  for (const ScriptFunction& part : parts_) {
    segments.emplace_back([this, &part](const std::vector<torch::Tensor>& inputs) { return part(module_, inputs); });
  }
  return segments;
}

void TorchScriptNetwork::train(bool on) {
  Network::train(on);
  module_.train(on);
}

NetworkSpec torchscript_spec(const std::string& file) {
  NetworkSpec spec{.arch = "torchscript", .options = {{"file", file}}};
  const torch::jit::Module module = load_script(file, file);
  spec.window = says_number(module, "window", 1, file);
  PictureShape shape{.window = spec.window, .all_frames = says_all_frames(module)};
  TorchScriptNetwork network(module, {}, file);
  network.eval();
  for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
    shape.channels = channels(color);
    const std::optional<int> scale = scale_for(network, shape);
    if (!scale) continue;
    spec.color = color;
    spec.scale = *scale;
    return spec;
  }
  fail_usage(
      fmt::format("{}: a TorchScript network that makes no larger picture of the same colours out of an RGB or gray "
                  "one of {}x{}: apply a run that trained it, which knows what it takes",
                  file, kUsualSides[0], kUsualSides[0]));
}

std::shared_ptr<Network> make_torchscript(const NetworkSpec& spec) {
  const std::string& file = spec.options.at("file");
  const std::string what = fmt::format("model.file: {}", file);
  torch::jit::Module module = load_script(file, what);
  const PictureShape shape{spec.scale, channels(spec.color), spec.window, says_all_frames(module)};
  NetworkInfo info{.scale = spec.scale,
                   .in_channels = shape.channels,
                   .out_channels = shape.channels,
                   .window = spec.window,
                   .size_multiple = std::stoi(spec.options.at("size_multiple")),
                   .receptive_radius_px = std::stoi(spec.options.at("receptive_radius_px")),
                   .all_frames = shape.all_frames,
                   .fixed_px = says_number(module, "fixed_px", 0, what)};
  auto network = std::make_shared<TorchScriptNetwork>(std::move(module), info, what);

  network->eval();
  find_sizes(*network, shape, info.size_multiple, what, info);
  if (info.fixed_px > 0) {
    if (info.receptive_radius_px < 0) info.receptive_radius_px = kFallbackRadius;
  } else {
    const InDouble in_double(*network);
    check_number_type(*network, shape, info.size_multiple, what);
  }
  if (info.receptive_radius_px < 0) {
    info.receptive_radius_px = radius_of(*network, shape, info.size_multiple, what);
  }
  network->train();
  network->set_info(info);
  return network;
}

}  // namespace reelgrad
