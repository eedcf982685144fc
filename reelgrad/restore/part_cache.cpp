#include "reelgrad/restore/part_cache.h"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <algorithm>

namespace reelgrad {

void PartCache::allocate(const torch::Tensor& like) {
  for (Slot& slot : slots_) allocate(slot, like);
}

void PartCache::allocate(Slot& slot, const torch::Tensor& like) {
  if (slot.features.defined()) return;
  slot.features = at::empty_like(like);
  if (device_.is_cuda()) slot.written = std::make_unique<c10::Event>(device_.type());
}

PartCache::Slot* PartCache::find(const NamedFrames& name) {
  const auto found =
      std::ranges::find_if(slots_, [&](const Slot& slot) { return slot.state != State::empty && slot.name == name; });
  return found == slots_.end() ? nullptr : &*found;
}

PartCache::Slot* PartCache::longest_unused() {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    if (slot.holders == 0 && (best == nullptr || slot.asked < best->asked)) best = &slot;
  }
  return best;
}

PartCache::Held::Held(PartCache& cache, const std::vector<std::optional<NamedFrames>>& parts) : cache_(cache) {
  parts_.reserve(parts.size());
  const std::lock_guard lock(cache.mutex_);
  for (const std::optional<NamedFrames>& name : parts) parts_.push_back(name ? claim(*name) : Part{});
}

PartCache::Held::Part PartCache::Held::claim(const NamedFrames& name) {
  Part part{.slot = cache_.find(name)};
  if (part.slot == nullptr) {
    part = {.slot = cache_.longest_unused(), .ours = true};
    if (part.slot == nullptr) return part;
    part.slot->name = name;
    part.slot->state = State::making;
  }
  part.slot->asked = ++cache_.asked_;
  ++part.slot->holders;
  return part;
}

PartCache::Held::~Held() {
  const std::lock_guard lock(cache_.mutex_);
  for (const Part& part : parts_) {
    if (part.slot == nullptr) continue;
    --part.slot->holders;
    if (!part.ours || part.slot->state != State::making) continue;
    part.slot->state = State::empty;
    part.slot->asked = 0;
  }
  cache_.changed_.notify_all();
}

void PartCache::write(Slot& slot, const torch::Tensor& features) {
  allocate(slot, features);
  slot.features.copy_(features);
  if (slot.written) slot.written->record(c10::cuda::getCurrentCUDAStream(device_.index()));
  const std::lock_guard lock(mutex_);
  slot.state = State::ready;
  changed_.notify_all();
}

// False when whoever was making it has failed.
bool PartCache::wait(Slot& slot) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return slot.state != State::making; });
  if (slot.state == State::empty) return false;
  if (slot.written) slot.written->block(c10::cuda::getCurrentCUDAStream(device_.index()));
  return true;
}

void PartCache::Held::give(const Make& make, const Take& take) {
  const int count = static_cast<int>(parts_.size());
  for (int i = 0; i < count; ++i) {
    const Part& part = parts_[static_cast<std::size_t>(i)];
    if (part.of_others()) continue;
    const torch::Tensor features = make(i);
    if (part.slot != nullptr) cache_.write(*part.slot, features);
    take(i, features);
  }
  for (int i = 0; i < count; ++i) {
    const Part& part = parts_[static_cast<std::size_t>(i)];
    if (part.of_others()) take(i, cache_.wait(*part.slot) ? part.slot->features : make(i));
  }
}

}  // namespace reelgrad
