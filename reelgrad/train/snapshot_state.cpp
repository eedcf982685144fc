#include "reelgrad/train/snapshot_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reelgrad/base/error.h"

namespace reelgrad {

void put_state(NamedTensors& state, std::string name, const torch::Tensor& value) {
  state.emplace_back(std::move(name), value.detach().to(torch::kCPU, value.scalar_type(), /*non_blocking=*/false,
                                                        /*copy=*/true, torch::MemoryFormat::Contiguous));
}

void put_state(NamedTensors& state, const std::string& prefix, const NamedTensors& values) {
  for (const auto& [name, value] : values) put_state(state, prefix + name, value);
}

const torch::Tensor* StateReader::find(const std::string& name) const {
  const auto found = std::ranges::find(state_, name, &NamedTensors::value_type::first);
  return found == state_.end() ? nullptr : &found->second;
}

void StateReader::copy_to(torch::Tensor into, const std::string& name) const {
  const torch::Tensor* value = find(name);
  if (value == nullptr) fail(fmt::format("the checkpoint has no \"{}\"", name));
  if (value->sizes() != into.sizes()) {
    fail(fmt::format("the checkpoint's \"{}\" is [{}], needed: [{}]", name, fmt::join(value->sizes(), ", "),
                     fmt::join(into.sizes(), ", ")));
  }
  torch::NoGradGuard no_grad;
  into.copy_(*value);
}

NamedTensors StateReader::below(const std::string& prefix) const {
  NamedTensors found;
  for (const auto& [name, value] : state_) {
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), value);
  }
  return found;
}

}  // namespace reelgrad
