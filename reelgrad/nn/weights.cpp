#include "reelgrad/nn/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"

namespace reelgrad {
namespace {

std::string describe_list(const char* what, const std::vector<std::string>& keys) {
  if (keys.empty()) return {};
  constexpr std::size_t kShown = 5;
  const std::vector<std::string> shown(keys.begin(), keys.begin() + std::min(kShown, keys.size()));
  return fmt::format("\n  {} {}: {}{}", keys.size(), what, join(shown, ", "), keys.size() > kShown ? ", …" : "");
}

std::string shape_text(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

}  // namespace

NamedTensors state_dict(const torch::nn::Module& network) {
  NamedTensors state;
  for (const auto& item : network.named_parameters()) state.emplace_back(item.key(), item.value().detach());
  for (const auto& item : network.named_buffers()) state.emplace_back(item.key(), item.value().detach());
  return state;
}

void load_strict(torch::nn::Module& network, const NamedTensors& state, const std::string& source) {
  std::map<std::string, torch::Tensor> given;
  std::vector<std::string> missing, unexpected, mismatched, repeated;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, tensor).second) repeated.push_back(name);
  }

  const NamedTensors wanted = state_dict(network);
  std::int64_t matching = 0;
  for (const auto& [name, tensor] : wanted) {
    const auto found = given.find(name);
    if (found == given.end()) {
      missing.push_back(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      mismatched.push_back(fmt::format("{} {} (needed {})", name, shape_text(found->second), shape_text(tensor)));
    } else {
      ++matching;
    }
  }
  for (const auto& [name, tensor] : state) {
    const bool known = std::ranges::any_of(wanted, [&](const auto& item) { return item.first == name; });
    if (!known) unexpected.push_back(name);
  }
  if (!missing.empty() || !unexpected.empty() || !mismatched.empty() || !repeated.empty()) {
    fail(fmt::format("{}: these weights do not fit the network: {} of {} tensors match{}{}{}{}", source, matching,
                     wanted.size(), describe_list("missing", missing), describe_list("unexpected", unexpected),
                     describe_list("of another shape", mismatched), describe_list("given twice", repeated)));
  }

  torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : wanted) tensor.copy_(given.at(name));
}

void to_channels_last(torch::nn::Module& network) {
  for (torch::Tensor& parameter : network.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

void require_finite(const NamedTensors& tensors, const std::string& what) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point()) continue;
    const std::int64_t bad = tensor.numel() - at::isfinite(tensor.detach()).sum().item<std::int64_t>();
    if (bad > 0) {
      fail(fmt::format("{}: {} has {} of {} values that are not finite", what, name, bad, tensor.numel()));
    }
  }
}

}  // namespace reelgrad
