#include "reelgrad/nn/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

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

// Not a number where one of them is not. Takes no memory of the tensor's size.
double largest_magnitude(const torch::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return at::linalg_vector_norm(tensor, std::numeric_limits<double>::infinity()).item<double>();
}

}  // namespace

NamedTensors state_dict(const torch::nn::Module& network) {
  NamedTensors state;
  for (const auto& item : network.named_parameters()) state.emplace_back(item.key(), item.value().detach());
  for (const auto& item : network.named_buffers()) state.emplace_back(item.key(), item.value().detach());
  return state;
}

namespace {

// The tensors of a file beside those of a network.
struct Fit {
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pairs;  // the network's, the file's
  LoadReport report;
  std::vector<std::string> repeated;
};

Fit fit(const torch::nn::Module& network, const NamedTensors& state) {
  Fit fit;
  std::map<std::string, torch::Tensor> given;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, tensor).second) fit.repeated.push_back(name);
  }
  std::int64_t values = 0, loaded = 0;
  std::set<std::string> known;
  for (const auto& [name, tensor] : state_dict(network)) {
    known.insert(name);
    values += tensor.numel();
    const auto found = given.find(name);
    if (found == given.end()) {
      fit.report.missing.push_back(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      fit.report.reshaped.push_back(
          fmt::format("{} {} (needed {})", name, shape_text(found->second), shape_text(tensor)));
    } else {
      fit.report.loaded.push_back(name);
      fit.pairs.emplace_back(tensor, found->second);
      loaded += tensor.numel();
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!known.contains(name)) fit.report.unexpected.push_back(name);
  }
  fit.report.share = values == 0 ? 0 : static_cast<double>(loaded) / static_cast<double>(values);
  return fit;
}

void copy_in(const Fit& fit) {
  const torch::NoGradGuard no_grad;
  for (const auto& [ours, theirs] : fit.pairs) ours.copy_(theirs);
}

bool is_strict(const Fit& fit) {
  return fit.report.missing.empty() && fit.report.unexpected.empty() && fit.report.reshaped.empty() &&
         fit.repeated.empty();
}

std::size_t wanted(const LoadReport& report) {
  return report.loaded.size() + report.missing.size() + report.reshaped.size();
}

}  // namespace

void load_strict(torch::nn::Module& network, const NamedTensors& state, const std::string& source) {
  const Fit found = fit(network, state);
  const LoadReport& report = found.report;
  if (!is_strict(found)) {
    fail(fmt::format("{}: these weights do not fit the network: {} of {} tensors match{}{}{}{}", source,
                     report.loaded.size(), wanted(report), describe_list("missing", report.missing),
                     describe_list("unexpected", report.unexpected), describe_list("of another shape", report.reshaped),
                     describe_list("given twice", found.repeated)));
  }
  copy_in(found);
}

bool fits(const torch::nn::Module& network, const NamedTensors& state) {
  return is_strict(fit(network, state));
}

LoadReport load_partial(torch::nn::Module& network, const NamedTensors& state, const std::string& source) {
  Fit found = fit(network, state);
  if (found.report.loaded.empty()) {
    fail(
        fmt::format("{}: nothing in it fits the network: {} tensors, none with the name and shape of one of the "
                    "network's {}",
                    source, state.size(), wanted(found.report)));
  }
  copy_in(found);
  return std::move(found.report);
}

std::string describe(const LoadReport& report) {
  std::string text = fmt::format("{} of {} tensors ({:.1f} % of the values)", report.loaded.size(), wanted(report),
                                 100 * report.share);
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("; {} {}: {}", names.size(), what, join(names, ", "));
  };
  add("missing, which start anew", report.missing);
  add("of another shape, which start anew", report.reshaped);
  add("unexpected, which are left out", report.unexpected);
  return text;
}

void to_channels_last(torch::nn::Module& network) {
  const auto lay_out = [](std::vector<torch::Tensor> tensors) {
    for (torch::Tensor& tensor : tensors) {
      if (tensor.dim() == 4) tensor.set_data(tensor.detach().contiguous(torch::MemoryFormat::ChannelsLast));
    }
  };
  lay_out(network.parameters());
  lay_out(network.buffers());
}

void require_finite(const NamedTensors& tensors, const std::string& what) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point()) continue;
    if (std::isfinite(largest_magnitude(tensor.detach()))) continue;
    const std::int64_t bad = tensor.numel() - at::isfinite(tensor.detach()).sum().item<std::int64_t>();
    fail(fmt::format("{}: {} has {} of {} values that are not finite", what, name, bad, tensor.numel()));
  }
}

}  // namespace reelgrad
