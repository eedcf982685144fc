// TorchScript run as PyTorch's eager mode runs, and cut where gradient checkpointing may cut it.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <memory>
#include <string>
#include <vector>

namespace reelgrad {

// A graph whose inputs are a module and tensors and whose outputs are tensors, run op by op. The executor that
// torch::jit::Module::forward goes through would fuse ops after its first runs, by what it saw in them: a resumed run
// would not repeat the unbroken one. It would also cast for autocast by rules of its own. Copies share the code; any
// number of threads may run it.
class ScriptFunction {
 public:
  ScriptFunction(const std::shared_ptr<torch::jit::Graph>& graph, const std::string& name);

  // Throws what the ops throw as the interpreter's std::runtime_error, which has the script's line in its text; memory
  // that is used up stays c10::OutOfMemoryError.
  std::vector<torch::Tensor> operator()(const torch::jit::Module& self, const std::vector<torch::Tensor>& inputs) const;

 private:
  torch::jit::Code code_;
};

// The module's forward as a whole.
ScriptFunction whole_forward(const torch::jit::Module& module);

// The same in parts: one for each call of a child (those of an nn.Sequential among the children singly), with what is
// computed between two calls. Every part gets the tensors that it and later parts need of earlier ones. There is no cut
// where something else than tensors would have to pass, nor before a part that changes its inputs in place.
std::vector<ScriptFunction> forward_parts(const torch::jit::Module& module);

}  // namespace reelgrad
