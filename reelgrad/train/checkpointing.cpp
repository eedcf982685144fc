#include "reelgrad/train/checkpointing.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/train/host_copy.h"
#include "reelgrad/train/replay_state.h"

namespace reelgrad {
namespace {

using Tensors = torch::autograd::variable_list;
using Segments = std::vector<NetworkSegment>;

constexpr std::size_t kSmallestOffloadBytes = 1 << 20;  // below it a copy costs more than the memory is worth

// Without gradients torch itself allows it; the second run would then start from other values.
void refuse_changes_in_place(at::TensorList inputs, const std::vector<std::int64_t>& versions_before) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]._version() == versions_before[i]) continue;
    fail(
        "checkpointing: a segment of the network changed its input in place; it must make a new tensor, or train with "
        "memory.checkpointing = \"off\"");
  }
}

std::vector<std::int64_t> versions(at::TensorList tensors) {
  std::vector<std::int64_t> list;
  for (const torch::Tensor& tensor : tensors) list.push_back(tensor._version());
  return list;
}

Tensors run_in_order(const Segments& segments, Tensors tensors) {
  for (const NetworkSegment& segment : segments) tensors = segment(tensors);
  return tensors;
}

int find_same(at::TensorList list, const torch::Tensor& tensor) {
  const auto found = std::ranges::find_if(list, [&](const torch::Tensor& other) { return other.is_same(tensor); });
  return found == list.end() ? -1 : static_cast<int>(found - list.begin());
}

// One run of one group, from its forward to its backward.
struct GroupRun : torch::CustomClassHolder {
  Segments segments;
  torch::Device device = torch::kCPU;
  bool offload = false;
  Tensors buffers;                        // of the network
  c10::intrusive_ptr<GroupRun> previous;  // whose backward comes next

  // Filled by forward.
  std::optional<ReplayState> state;
  std::vector<int> passed_on;                          // per output: which input it is, -1 for a new tensor
  std::vector<std::unique_ptr<HostCopy>> host_copies;  // per input: null where it is saved as it is

  // What the group made itself; its inputs, passed on, stay out of the graph.
  Tensors made_here(Tensors outputs) const {
    Tensors made;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (passed_on[i] < 0) made.push_back(std::move(outputs[i]));
    }
    return made;
  }

  void prefetch() const {
    for (const auto& copy : host_copies) {
      if (copy) copy->prefetch();
    }
  }
};

using GroupRunPtr = c10::intrusive_ptr<GroupRun>;

// Copies to the host what only this group's backward still needs. Returns what is to be saved as it is.
Tensors move_to_host(GroupRun& run, at::TensorList inputs, at::cuda::CUDAEvent& ready) {
  Tensors saved;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool needed_later = std::ranges::find(run.passed_on, static_cast<int>(i)) != run.passed_on.end();
    const bool moves =
        run.offload && !needed_later && inputs[i].nbytes() >= kSmallestOffloadBytes && HostCopy::can_copy(inputs[i]);
    run.host_copies.push_back(moves ? std::make_unique<HostCopy>(inputs[i], ready) : nullptr);
    if (!moves) saved.push_back(inputs[i]);
  }
  return saved;
}

// The inputs that forward had, as leaves.
Tensors take_inputs(const GroupRun& run, const Tensors& saved) {
  Tensors inputs;
  auto next = saved.begin();
  for (const auto& copy : run.host_copies) {
    if (copy) {
      inputs.push_back(copy->take());
      continue;
    }
    inputs.push_back(next->detach().set_requires_grad(next->requires_grad()));
    ++next;
  }
  return inputs;
}

// Note [Parameters are inputs]: the graph of a re-run group ends at the parameters. Their gradients are handed to the
// outer graph rather than added to .grad there and then: so they are summed as they are without checkpointing, hooks on
// .grad run once, and the first group has an input that requires gradients.
class CheckpointedGroup : public torch::autograd::Function<CheckpointedGroup> {
 public:
  // -> the tensors that the group made.
  static Tensors forward(torch::autograd::AutogradContext* context, const GroupRunPtr& run, at::TensorList inputs,
                         at::TensorList parameters) {
    run->state = ReplayState::now(run->device);
    at::cuda::CUDAEvent inputs_ready;
    if (run->offload) inputs_ready.record();
    const std::vector<std::int64_t> versions_before = versions(inputs);

    Tensors outputs;
    {
      const WithoutCastCache without_cast_cache;
      outputs = run_in_order(run->segments, inputs.vec());
    }
    refuse_changes_in_place(inputs, versions_before);
    for (const torch::Tensor& output : outputs) run->passed_on.push_back(find_same(inputs, output));

    context->set_materialize_grads(false);
    context->saved_data["run"] = c10::IValue::make_capsule(run);
    context->saved_data["parameters"] = parameters.vec();
    context->save_for_backward(move_to_host(*run, inputs, inputs_ready));
    return run->made_here(std::move(outputs));
  }

  static Tensors backward(torch::autograd::AutogradContext* context, Tensors output_gradients) {
    const auto run = c10::static_intrusive_pointer_cast<GroupRun>(context->saved_data["run"].toCapsule());
    const Tensors inputs = take_inputs(*run, context->get_saved_variables());
    if (run->previous) run->previous->prefetch();

    BufferState buffers(run->buffers);  // forward has brought them forward; the second run must not do it again
    Tensors outputs;
    {
      const Replay replay(*run->state);
      const torch::AutoGradMode with_gradients(true);
      outputs = run->made_here(run_in_order(run->segments, inputs));
    }

    Tensors roots, root_gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!output_gradients[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(std::move(outputs[i]));
      root_gradients.push_back(std::move(output_gradients[i]));
    }
    Tensors results = gradients(roots, root_gradients, inputs, context->saved_data["parameters"].toTensorVector());
    buffers.restore();  // the graph, which looks after its tensors' versions, is gone
    return results;
  }

 private:
  // One for each argument of forward(), undefined where none is needed.
  static Tensors gradients(const Tensors& roots, const Tensors& root_gradients, const Tensors& inputs,
                           const Tensors& parameters) {
    Tensors wanted;
    std::vector<std::size_t> places;
    const auto want = [&](const torch::Tensor& tensor, std::size_t place) {
      if (!tensor.requires_grad()) return;
      wanted.push_back(tensor);
      places.push_back(place);
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) want(inputs[i], 1 + i);
    for (std::size_t i = 0; i < parameters.size(); ++i) want(parameters[i], 1 + inputs.size() + i);

    Tensors results(1 + inputs.size() + parameters.size());
    if (roots.empty() || wanted.empty()) return results;
    Tensors found = torch::autograd::grad(roots, wanted, root_gradients, /*retain_graph=*/false,
                                          /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < found.size(); ++i) results[places[i]] = std::move(found[i]);
    return results;
  }
};

// All outputs of the group, those passed on included.
Tensors run_group(const GroupRunPtr& run, const Tensors& inputs, const Tensors& parameters) {
  Tensors made = CheckpointedGroup::apply(run, at::TensorList(inputs), at::TensorList(parameters));
  Tensors outputs;
  auto next = made.begin();
  for (const int input : run->passed_on) outputs.push_back(input < 0 ? std::move(*next++) : inputs[input]);
  return outputs;
}

// Group `index` of `count`.
Segments group(const Segments& segments, std::size_t index, std::size_t count) {
  const auto boundary = [&](std::size_t i) {
    return segments.begin() + static_cast<std::ptrdiff_t>(i * segments.size() / count);
  };
  return {boundary(index), boundary(index + 1)};
}

Tensors trained(Tensors weights) {
  std::erase_if(weights, [](const torch::Tensor& weight) { return !weight.requires_grad(); });
  return weights;
}

}  // namespace

std::vector<torch::Tensor> run_checkpointed(const SegmentedPass& pass, std::vector<torch::Tensor> inputs,
                                            const CheckpointPlan& plan) {
  if (plan.segments <= 0 || !torch::GradMode::is_enabled()) return run_in_order(pass.segments, std::move(inputs));
  const torch::Device device = inputs.front().device();
  const bool offload = plan.offload && device.is_cuda();
  if (offload && is_captured(device)) fail("checkpointing with offload cannot be captured in a CUDA graph");

  const std::size_t count = std::min(static_cast<std::size_t>(plan.segments), pass.segments.size());
  Tensors tensors = std::move(inputs);
  GroupRunPtr previous;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    const auto run = c10::make_intrusive<GroupRun>();
    run->segments = group(pass.segments, i, count);
    run->device = device;
    run->buffers = pass.buffers;
    // The first group's input is the caller's, who holds it anyway. The last's is the first that backward needs: at
    // that moment its own tensors take the most, whether this one waited on the card or not.
    run->offload = offload && i > 0 && i + 2 < count;
    run->previous = std::exchange(previous, run);
    tensors = run_group(run, tensors, pass.weights);
  }
  return run_in_order(group(pass.segments, count - 1, count), std::move(tensors));
}

torch::Tensor forward_checkpointed(Network& network, const torch::Tensor& input, const CheckpointPlan& plan) {
  if (plan.segments <= 0 || !torch::GradMode::is_enabled()) return network.forward(input);
  const Tensors outputs =
      run_checkpointed({network.segments(), trained(network.parameters()), network.buffers()}, {input}, plan);
  if (outputs.size() != 1) {
    fail("checkpointing: the network's last segment gave " + std::to_string(outputs.size()) + " tensors, needed: 1");
  }
  return outputs.front();
}

std::vector<torch::Tensor> forward_checkpointed(Discriminator& discriminator, const torch::Tensor& x,
                                                const CheckpointPlan& plan) {
  DiscriminatorPass pass = discriminator.pass();
  return run_checkpointed({std::move(pass.segments), trained(pass.weights), discriminator.buffers()}, {x}, plan);
}

int automatic_segments(std::size_t finest_segments, bool offload) {
  const auto finest = static_cast<int>(finest_segments);
  const auto root = static_cast<int>(std::lround(std::sqrt(finest)));
  return std::max(root, offload ? std::min(2 * root, finest / 4) : 1);
}

int automatic_segments(Network& network, bool offload) {
  return automatic_segments(network.segments().size(), offload);
}

}  // namespace reelgrad
