#include "reelgrad/nn/script_function.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>

namespace reelgrad {
namespace {

namespace jit = torch::jit;

std::shared_ptr<jit::Graph> inlined_forward(const jit::Module& module) {
  std::shared_ptr<jit::Graph> copy = module.get_method("forward").graph()->copy();
  jit::Inline(*copy);
  return copy;
}

bool is_sequential(const jit::Value& module) {
  const auto type = module.type()->cast<c10::ClassType>();
  return type && type->name() && type->name()->name() == "Sequential";
}

bool has_node(jit::Block& block, c10::Symbol kind) {
  for (jit::Node* node : block.nodes()) {
    if (node->kind() == kind) return true;
    for (jit::Block* inner : node->blocks()) {
      if (has_node(*inner, kind)) return true;
    }
  }
  return false;
}

// Puts the calls that an nn.Sequential makes in the place of its own call.
void open_sequentials(jit::Graph& graph) {
  for (bool opened = true; opened;) {
    opened = false;
    for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
      jit::Node* node = *it++;  // goes away when it is opened
      if (node->kind() != c10::prim::CallMethod || !is_sequential(*node->input(0))) continue;
      jit::GraphFunction* callee = jit::tryToGraphFunction(node);
      if (callee == nullptr) continue;
      jit::inlineCallTo(node, callee, callee->graph().get());  // by default its calls would be inlined as well
      opened = true;
    }
  }
}

// Cuts a graph into runs of its top-level nodes. Constants, and the modules and weights that are read from `self`, are
// in no run: each part reads its own.
class Cutter {
 public:
  explicit Cutter(std::shared_ptr<jit::Graph> graph) : graph_(std::move(graph)) {
    for (jit::Node* node : graph_->nodes()) {
      if (!is_free(*node)) nodes_.push_back(node);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) position_[nodes_[i]] = i;
  }

  std::vector<std::shared_ptr<jit::Graph>> parts() const {
    // From the back: a part that may not be cut off joins the one before it.
    std::vector<std::size_t> begins = cuts();
    begins.insert(begins.begin(), 0);
    std::vector<std::shared_ptr<jit::Graph>> parts;
    for (std::size_t end = nodes_.size(); !begins.empty();) {
      const std::size_t begin = begins.back();
      begins.pop_back();
      std::shared_ptr<jit::Graph> graph = part(begin, end);
      if (begin > 0 && writes_to_inputs(*graph)) continue;
      parts.insert(parts.begin(), std::move(graph));
      end = begin;
    }
    return parts;
  }

 private:
  bool is_free(const jit::Node& node) const {
    if (node.kind() == c10::prim::Constant) return true;
    return node.kind() == c10::prim::GetAttr && is_of_self(*node.input(0));
  }

  bool is_of_self(const jit::Value& value) const { return &value == graph_->inputs()[0] || is_free(*value.node()); }

  // Where the value is used last, as a position among the nodes; the graph's output comes after all of them.
  std::size_t last_use(const jit::Value& value) const {
    std::size_t last = 0;
    for (const jit::Use& use : value.uses()) {
      const jit::Node* user = use.user;
      while (user->owningBlock() != graph_->block()) user = user->owningBlock()->owningNode();
      const auto found = position_.find(user);
      last = std::max(last, found == position_.end() ? nodes_.size() : found->second);
    }
    return last;
  }

  // The values that nodes from `at` on need of what comes before.
  std::vector<jit::Value*> passing(std::size_t at) const {
    std::vector<jit::Value*> values;
    const auto add = [&](jit::Value* value) {
      if (!value->uses().empty() && last_use(*value) >= at) values.push_back(value);
    };
    if (at == 0) return {graph_->inputs()[1]};
    add(graph_->inputs()[1]);
    for (std::size_t i = 0; i < at; ++i) {
      for (jit::Value* value : nodes_[i]->outputs()) add(value);
    }
    return values;
  }

  // Positions after a call of a child at which only tensors pass.
  std::vector<std::size_t> cuts() const {
    std::vector<std::size_t> cuts;
    for (std::size_t at = 1; at < nodes_.size(); ++at) {
      if (nodes_[at - 1]->kind() != c10::prim::CallMethod) continue;
      const bool later_calls = std::any_of(nodes_.begin() + static_cast<std::ptrdiff_t>(at), nodes_.end(),
                                           [](const jit::Node* node) { return node->kind() == c10::prim::CallMethod; });
      const std::vector<jit::Value*> values = passing(at);
      const bool tensors = std::ranges::all_of(
          values, [](const jit::Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); });
      if (later_calls && tensors) cuts.push_back(at);
    }
    return cuts;
  }

  // The nodes from `begin` to `end` as a graph of their own.
  std::shared_ptr<jit::Graph> part(std::size_t begin, std::size_t end) const {
    auto graph = std::make_shared<jit::Graph>();
    std::map<const jit::Value*, jit::Value*> ours;
    const auto add_input = [&](const jit::Value* value) {
      ours[value] = graph->addInput();
      ours[value]->setType(value->type());
    };
    add_input(graph_->inputs()[0]);
    for (const jit::Value* value : passing(begin)) add_input(value);

    std::function<jit::Value*(jit::Value*)> mapped;
    const auto copy = [&](jit::Node* node) {
      jit::Node* clone = graph->createClone(node, mapped);
      graph->appendNode(clone);
      for (std::size_t i = 0; i < node->outputs().size(); ++i) ours[node->outputs()[i]] = clone->outputs()[i];
    };
    mapped = [&](jit::Value* value) {
      if (!ours.contains(value)) copy(value->node());  // a free node, which the part reads for itself
      return ours.at(value);
    };
    for (std::size_t i = begin; i < end; ++i) copy(nodes_[i]);
    if (end == nodes_.size()) {
      graph->registerOutput(mapped(graph_->outputs()[0]));
    } else {
      for (jit::Value* value : passing(end)) graph->registerOutput(mapped(value));
    }
    jit::Inline(*graph);
    return graph;
  }

  static bool writes_to_inputs(jit::Graph& graph) {
    std::shared_ptr<jit::Graph> copy = graph.copy();
    jit::ConstantPropagation(copy);  // an activation's branch for inplace=True goes away where it is False
    const jit::AliasDb aliases(copy);
    const auto inputs = copy->inputs();
    return std::any_of(inputs.begin() + 1, inputs.end(),
                       [&](const jit::Value* input) { return aliases.hasWriters(input); });
  }

  std::shared_ptr<jit::Graph> graph_;
  std::vector<jit::Node*> nodes_;
  std::map<const jit::Node*, std::size_t> position_;
};

}  // namespace

ScriptFunction::ScriptFunction(const std::shared_ptr<jit::Graph>& graph, const std::string& name)
    : code_(graph, name) {}

std::vector<torch::Tensor> ScriptFunction::operator()(const jit::Module& self,
                                                      const std::vector<torch::Tensor>& inputs) const {
  jit::Stack stack{self._ivalue()};
  stack.insert(stack.end(), inputs.begin(), inputs.end());
  try {
    jit::InterpreterState(code_).run(stack);
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    // The interpreter keeps an error's text and loses its type.
    const std::string_view text = error.what();
    const bool no_memory =
        text.find("CUDA out of memory") != text.npos || text.find("DefaultCPUAllocator") != text.npos;
    if (!no_memory) throw;
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  }
  std::vector<torch::Tensor> outputs;
  for (const c10::IValue& value : stack) outputs.push_back(value.toTensor());
  return outputs;
}

ScriptFunction whole_forward(const jit::Module& module) {
  return {inlined_forward(module), "forward"};
}

std::vector<ScriptFunction> forward_parts(const jit::Module& module) {
  // What the script sets in itself would have to be set once and in order.
  if (has_node(*inlined_forward(module)->block(), c10::prim::SetAttr)) return {whole_forward(module)};
  std::shared_ptr<jit::Graph> graph = module.get_method("forward").graph()->copy();
  open_sequentials(*graph);
  std::vector<ScriptFunction> parts;
  for (const auto& part : Cutter(std::move(graph)).parts()) parts.emplace_back(part, "forward");
  return parts;
}

}  // namespace reelgrad
