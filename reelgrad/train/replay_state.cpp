#include "reelgrad/train/replay_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <map>
#include <mutex>
#include <optional>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

constexpr std::array kAutocastTypes{torch::kCPU, torch::kCUDA};

using CardState = c10::intrusive_ptr<at::CUDAGeneratorState>;

torch::Tensor generator_state(torch::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(torch::Device device, const torch::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// Note [Random numbers within a capture]: while a graph is captured, torch refuses to read or set a generator's state;
// its position is CUDAGeneratorState::offset_intragraph_, which is public, but the pointer to that object is not. So
// each card's default generator is given a state object that is ours: a copy of its own, made before any capture.
class CardStates {
 public:
  void install(torch::Device device) {
    const std::lock_guard lock(mutex_);
    if (!states_[device.index()]) make(device);
  }

  void renew(torch::Device device, std::uint64_t seed, std::uint64_t offset) {
    const std::lock_guard lock(mutex_);
    make(device, std::pair(seed, offset));
  }
  // The state that the capture under way on this stream advances.
  at::CUDAGeneratorState& captured(torch::Device device) {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(device.index());
    if (found == states_.end() || !found->second->capturing_) {
      fail("checkpointing: a CUDA graph is captured before the first eager step on " + device.str() +
           ", or without its default generator: run a step before the capture");
    }
    return *found->second;
  }

 private:
  // At the generator's own place, or at (seed, offset).
  void make(torch::Device device, std::optional<std::pair<std::uint64_t, std::uint64_t>> place = std::nullopt) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard generator_lock(generator.mutex());
    const auto* card = generator.get<at::CUDAGeneratorImpl>();
    if (!place) place.emplace(card->current_seed(), card->philox_offset_per_thread());
    CardState& state = states_[device.index()];
    state = c10::make_intrusive<at::CUDAGeneratorState>(place->first, place->second);
    generator.graphsafe_set_state(at::make_generator<at::CUDAGeneratorImpl>(device.index(), state));
  }

  std::mutex mutex_;
  std::map<torch::DeviceIndex, CardState> states_;
};

CardStates& card_states() {
  static auto& states = *new CardStates;  // never destroyed: its tensors must not outlive the driver
  return states;
}

}  // namespace

void GeneratorPlace::renew() const {
  card_states().renew(device_, seed_, offset_);
}

GeneratorPlace::GeneratorPlace(torch::Device device) : device_(device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  const auto* card = generator.get<at::CUDAGeneratorImpl>();
  seed_ = card->current_seed();
  offset_ = card->philox_offset_per_thread();
}

BufferState::BufferState(std::vector<torch::Tensor> buffers) : buffers_(std::move(buffers)) {
  for (const torch::Tensor& buffer : buffers_) copies_.push_back(buffer.detach().clone());
}

// As if they had never changed: another pass through the same network, whose backward is still to come, must find
// their versions as it saved them.
void BufferState::restore() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].variable_data().copy_(copies_[i]);
}

bool is_captured(torch::Device device) {
  return device.is_cuda() && c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

RandomState RandomState::now(torch::Device device) {
  RandomState state(device);
  state.cpu_ = generator_state(torch::kCPU);
  if (!device.is_cuda()) return state;
  if (is_captured(device)) {
    state.captured_offset_ = card_states().captured(device).offset_intragraph_;
    return state;
  }
  card_states().install(device);
  state.card_ = generator_state(device);
  return state;
}

void RandomState::restore() const {
  set_generator_state(torch::kCPU, cpu_);
  if (!device_.is_cuda()) return;
  if (card_.defined()) {
    set_generator_state(device_, card_);
  } else {
    card_states().captured(device_).offset_intragraph_ = captured_offset_;
  }
}

AutocastState AutocastState::now() {
  AutocastState state;
  for (std::size_t i = 0; i < kAutocastTypes.size(); ++i) {
    state.states_[i] = {at::autocast::is_autocast_enabled(kAutocastTypes[i]),
                        at::autocast::get_autocast_dtype(kAutocastTypes[i])};
  }
  return state;
}

void AutocastState::restore() const {
  for (std::size_t i = 0; i < kAutocastTypes.size(); ++i) {
    at::autocast::set_autocast_enabled(kAutocastTypes[i], states_[i].enabled);
    at::autocast::set_autocast_dtype(kAutocastTypes[i], states_[i].dtype);
  }
}

WithoutCastCache::WithoutCastCache() : previous_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

WithoutCastCache::~WithoutCastCache() {
  at::autocast::set_autocast_cache_enabled(previous_);
}

}  // namespace reelgrad
