#include "reelgrad/nn/network_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

constexpr int kProbedSize = 16;  // pixels, about
constexpr int kLargestMultiple = 64;
constexpr int kLargestRadius = 64;  // pixels; larger ones cost seconds

torch::TensorOptions options_of(const Network& network) {
  const std::vector<torch::Tensor> parameters = network.parameters();
  return parameters.empty() ? torch::TensorOptions() : parameters.front().options().requires_grad(false);
}

// [1, C, H, W], or [1, T, C, H, W], in [0, 1].
torch::Tensor noise(const Network& network, const PictureShape& shape, std::int64_t height, std::int64_t width) {
  auto generator = at::detail::createCPUGenerator(/*seed=*/1);
  std::vector<std::int64_t> sizes{1, shape.channels, height, width};
  if (shape.window > 1) sizes.insert(sizes.begin() + 1, shape.window);
  return at::rand(sizes, generator, torch::TensorOptions().dtype(torch::kFloat64)).to(options_of(network));
}

struct Trial {
  torch::Tensor output;  // undefined: it threw
  std::vector<std::int64_t> input_sizes, wanted_sizes;
  std::string error;  // its first line

  bool fits() const { return output.defined() && output.sizes() == torch::IntArrayRef(wanted_sizes); }
};

// The interpreter of TorchScript puts what was wrong on its last line, LibTorch on its first.
std::string essence(std::string_view text) {
  const auto last = text.rfind("RuntimeError: ");
  if (last != text.npos) text.remove_prefix(last);
  return std::string(text.substr(0, text.find('\n')));
}

Trial tried(Network& network, const PictureShape& shape, std::int64_t height, std::int64_t width) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = noise(network, shape, height, width);
  Trial trial{.input_sizes = input.sizes().vec(),
              .wanted_sizes = {1, shape.channels, height * shape.scale, width * shape.scale}};
  if (shape.all_frames) trial.wanted_sizes.insert(trial.wanted_sizes.begin() + 1, shape.window);
  try {
    trial.output = network.forward(input);
  } catch (const std::exception& error) {
    trial.error = essence(error.what());
  }
  return trial;
}

// Odd counts of cells: the sizes are no multiples of anything larger.
Trial tried(Network& network, const PictureShape& shape, int multiple) {
  const int cells = std::max(1, kProbedSize / multiple) | 1;
  return tried(network, shape, cells * multiple, (cells + 2) * multiple);
}

// What would work instead, as a remedy, or empty.
std::string remedy(Network& network, const PictureShape& shape) {
  for (const int channels : {1, 3}) {
    PictureShape other = shape;
    other.channels = channels;
    if (channels != shape.channels && tried(network, other, kLargestMultiple).output.defined()) {
      return fmt::format("; it takes {} channel{}: set data.color to \"{}\"", channels, channels == 1 ? "" : "s",
                         channels == 1 ? "gray" : "rgb");
    }
  }
  for (const int window : {1, 3, 5, 7}) {
    PictureShape other = shape;
    other.window = window;
    if (window != shape.window && tried(network, other, kLargestMultiple).output.defined()) {
      return fmt::format("; it takes {}: set data.window = {}",
                         window == 1 ? "single pictures" : fmt::format("windows of {} frames", window), window);
    }
  }
  return "";
}

[[noreturn]] void refuse_trial(Network& network, const PictureShape& shape, const Trial& trial,
                               const std::string& what) {
  const std::string input = fmt::format("[{}]", fmt::join(trial.input_sizes, ", "));
  if (!trial.output.defined()) {
    fail_usage(fmt::format("{} cannot take pictures of {}: {}{}", what, input, trial.error, remedy(network, shape)));
  }
  fail_usage(fmt::format("{} turns {} into [{}], needed for model.scale = {} and {} channels: [{}]", what, input,
                         fmt::join(trial.output.sizes(), ", "), shape.scale, shape.channels,
                         fmt::join(trial.wanted_sizes, ", ")));
}

// Where the gradient of the output cell in the middle is not zero, as the farthest distance from that cell, and whether
// that is at the picture's border.
struct Reach {
  std::int64_t radius = 0;
  bool cut_off = false;
  bool faint = false;
};

bool is_faint(const torch::Tensor& gradient) {
  constexpr double kMargin = 1e8;  // influence falls by less from one pixel to the next
  const torch::Tensor strengths = gradient.abs();
  const double smallest = gradient.scalar_type() == torch::kFloat64 ? std::numeric_limits<double>::min()
                                                                    : std::numeric_limits<float>::min();
  return torch::logical_and(strengths > 0, strengths < smallest * kMargin).any().item<bool>();
}

Reach reach_in(Network& network, const PictureShape& shape, std::int64_t cell, std::int64_t size) {
  torch::Tensor input = noise(network, shape, size, size).requires_grad_();
  const torch::Tensor output = network.forward(input);
  const std::int64_t begin = size / cell / 2 * cell;
  const std::int64_t scale = shape.scale;
  const torch::Tensor middle =
      output.slice(-2, begin * scale, (begin + cell) * scale).slice(-1, begin * scale, (begin + cell) * scale);
  // Different weights: pixels of equal and opposite influence must not hide one another.
  const torch::Tensor weights = torch::linspace(1, 2, middle.numel(), middle.options()).view(middle.sizes());
  const torch::Tensor gradient = torch::autograd::grad({(middle * weights).sum()}, {input}, {}, false, false,
                                                       /*allow_unused=*/true)[0];
  if (!gradient.defined()) return {};

  Reach reach{.faint = is_faint(gradient)};
  const torch::Tensor touched = (gradient != 0).reshape({-1, size, size}).any(0);
  for (const int dim : {0, 1}) {
    const torch::Tensor lines = touched.any(dim).nonzero();
    if (lines.numel() == 0) continue;
    const auto first = lines.min().item<std::int64_t>(), last = lines.max().item<std::int64_t>();
    // From the far side of the cell: which of its pixels reaches farthest is not known.
    reach.radius = std::max({reach.radius, begin + cell - 1 - first, last - begin});
    reach.cut_off = reach.cut_off || first == 0 || last == size - 1;
  }
  return reach;
}

}  // namespace

int measure_size_multiple(Network& network, const PictureShape& shape, const std::string& what) {
  Trial trial;
  for (int multiple = 1; multiple <= kLargestMultiple; multiple *= 2) {
    trial = tried(network, shape, multiple);
    if (trial.fits()) return multiple;
  }
  refuse_trial(network, shape, trial, what);
}

std::optional<int> measure_fixed_size(Network& network, const PictureShape& shape) {
  for (const int side : kUsualSides) {
    if (tried(network, shape, side, side).fits()) return side;
  }
  return std::nullopt;
}

void check_output_of(Network& network, const PictureShape& shape, int side, const std::string& what) {
  const Trial trial = tried(network, shape, side, side);
  if (!trial.fits()) refuse_trial(network, shape, trial, what);
}

void check_output(Network& network, const PictureShape& shape, int size_multiple, const std::string& what) {
  const Trial trial = tried(network, shape, size_multiple);
  if (!trial.fits()) refuse_trial(network, shape, trial, what);
}

void check_number_type(Network& network, const PictureShape& shape, int size_multiple, const std::string& what) {
  const Trial trial = tried(network, shape, size_multiple);
  const torch::ScalarType type = c10::typeMetaToScalarType(options_of(network).dtype());
  if (trial.output.defined() && trial.output.scalar_type() == type) return;
  const std::string problem =
      trial.output.defined() ? fmt::format("it gives {}", c10::toString(trial.output.scalar_type())) : trial.error;
  fail_usage(fmt::format("{} has a number type written down in its code: in {} {}; take that of a tensor (x.dtype)",
                         what, c10::toString(type), problem));
}

MeasuredRadius measure_receptive_radius(Network& network, const PictureShape& shape, int size_multiple) {
  const torch::AutoGradMode with_gradients(true);
  bool faint = false;
  for (const int half : {8, 16, 32, kLargestRadius}) {
    const std::int64_t cells = (2 * half + size_multiple - 1) / size_multiple | 1;  // one cell is in the middle
    const Reach reach = reach_in(network, shape, size_multiple, cells * size_multiple);
    faint = reach.faint;
    if (!reach.cut_off) return {static_cast<int>(reach.radius), faint};
  }
  return {std::nullopt, faint};
}

}  // namespace reelgrad
