#include "reelgrad/train/training_state.h"

#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <torch/torch.h>

#include "reelgrad/base/log.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/memory_plan.h"
#include "reelgrad/train/snapshot_state.h"

namespace reelgrad {
namespace {

torch::Generator default_generator(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

// What the bits of a deterministic run depend on besides its configuration.
std::string machine(torch::Device device) {
  if (device.is_cpu()) return fmt::format("the CPU with {} threads, torch {}", at::get_num_threads(), TORCH_VERSION);
  return fmt::format("{}, torch {}, cuDNN {}", at::cuda::getDeviceProperties(device.index())->name, TORCH_VERSION,
                     at::detail::getCUDAHooks().versionRuntimeCuDNN());
}

torch::Tensor text_tensor(const std::string& text) {
  return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), torch::kUInt8);
}

std::string text_of(const torch::Tensor& tensor) {
  const auto* bytes = tensor.const_data_ptr<std::uint8_t>();
  return {bytes, bytes + tensor.numel()};
}

void compare_machines(const std::string& before, torch::Device device) {
  const std::string now = machine(device);
  if (before == now) return;
  log::info(
      fmt::format("the run was on {} so far and goes on with {}: not bit for bit as it would have there", before, now));
}

// The rounding of a step depends on its micro-batches; on a larger card a run goes on as it was.
// But another plan that is asked for is another one that is wanted.
void restore_plan(const StateReader& training, std::int64_t step, const TrainingParts& parts) {
  const torch::Tensor* saved = training.find("memory_plan");
  const torch::Tensor* asked = training.find("memory_plan_asked");
  if (saved == nullptr || asked == nullptr || memory_plan(*asked) != first_plan(parts.config, parts.network)) return;
  const MemoryPlan plan = memory_plan(*saved);
  if (plan == parts.steps.plan()) return;
  parts.steps.set_plan(plan, step);
  log::info(fmt::format("going on as the run did: {}", describe(plan, parts.samples())));
}

// Another loss has begun a new record.
void restore_meter(const StateReader& training, const std::string& name, LossMeter& meter) {
  const torch::Tensor* saved = training.find(name);
  if (saved != nullptr && saved->sizes() == meter.state().sizes()) meter.load_state(*saved);
}

void restore_opponent(const Snapshot& snapshot, const TrainingParts& parts) {
  if (snapshot.discriminator.empty()) {
    log::info("the checkpoint has no discriminator: it begins as it would in a new run");
    return;
  }
  const NamedTensors own = StateReader(snapshot.training).below("discriminator.");
  load_strict(parts.adversary->network(), snapshot.discriminator,
              fmt::format("the discriminator in the checkpoint of step {}", snapshot.step));
  parts.opponent->updater.load_state(own);
  restore_meter(StateReader(snapshot.training), "meter.discriminator", parts.opponent->meter);
}

void restore_generator(const StateReader& training, const std::string& name, torch::Device of) {
  const torch::Tensor* state = training.find(name);
  if (state == nullptr) {
    log::warning(
        fmt::format("the checkpoint has no state of the {} generator: the run is not repeated bit for bit", of.str()));
    return;
  }
  default_generator(of).set_state(*state);
}

}  // namespace

void put_training_state(Snapshot& snapshot, const TrainingParts& parts) {
  NamedTensors& training = snapshot.training;
  put_state(snapshot.model, "", parts.generator.updater.evaluation_weights());
  parts.network.derive(snapshot.model);
  put_state(training, "network.", state_dict(parts.network));
  put_state(training, "", parts.generator.updater.state());
  if (parts.opponent != nullptr) {
    put_state(snapshot.discriminator, "", state_dict(parts.adversary->network()));
    put_state(training, "discriminator.", parts.opponent->updater.state());
  }
  const std::string what =
      fmt::format("step {}: the checkpoint is not saved, those saved before are untouched", snapshot.step);
  require_finite(snapshot.model, what);
  require_finite(training, what);
  require_finite(snapshot.discriminator, what);
  put_state(training, "meter.losses", parts.generator.meter.state());
  if (parts.opponent != nullptr) put_state(training, "meter.discriminator", parts.opponent->meter.state());
  put_state(training, "memory_plan", to_tensor(parts.steps.plan()));
  put_state(training, "memory_plan_asked", to_tensor(first_plan(parts.config, parts.network)));
  put_state(training, "machine", text_tensor(machine(parts.device)));
  put_state(training, "generator.cpu", default_generator(torch::kCPU).get_state());
  if (parts.device.is_cuda()) put_state(training, "generator.cuda", default_generator(parts.device).get_state());
}

void restore_training_state(const Snapshot& snapshot, const TrainingParts& parts) {
  const StateReader training(snapshot.training);
  load_strict(parts.network, training.below("network."), fmt::format("checkpoint of step {}", snapshot.step));
  parts.generator.updater.load_state(snapshot.training);
  restore_meter(training, "meter.losses", parts.generator.meter);
  if (parts.opponent != nullptr) restore_opponent(snapshot, parts);
  if (const torch::Tensor* saved = training.find("machine")) compare_machines(text_of(*saved), parts.device);
  restore_plan(training, snapshot.step, parts);
  restore_generator(training, "generator.cpu", torch::kCPU);
  if (parts.device.is_cuda()) restore_generator(training, "generator.cuda", parts.device);
}

}  // namespace reelgrad
