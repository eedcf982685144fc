#include "reelgrad/nn/discriminators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/initialisation.h"

namespace reelgrad {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct DiscriminatorRow {
  std::string_view name;
  std::shared_ptr<Discriminator> (*make)(const DiscriminatorOptions& options);
  std::optional<DiscriminatorOptions> (*detect)(const StateShapes& shapes);
};

constexpr std::array<DiscriminatorRow, 3> kDiscriminators{{
    {"unet_sn", make_unet_sn, detect_unet_sn},
    {"patch_vgg", make_patch_vgg, detect_patch_vgg},
    {"patchgan", make_patchgan, detect_patchgan},
}};

// The default generator as it was, when this ends.
class WithSeed {
 public:
  explicit WithSeed(std::uint64_t seed) : before_(generator_.get_state()) { generator_.set_current_seed(seed); }
  ~WithSeed() { generator_.set_state(before_); }
  WithSeed(const WithSeed&) = delete;
  WithSeed& operator=(const WithSeed&) = delete;

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  torch::Tensor before_;
};

int halved_up(int size, int times) {
  for (int i = 0; i < times; ++i) size = (size + 1) / 2;
  return size;
}

torch::Tensor half_size(const torch::Tensor& x) {
  return at::avg_pool2d(x, 3, 2, 1, /*ceil_mode=*/false, /*count_include_pad=*/false);
}

// The segment, with the first `count` tensors passed on.
NetworkSegment beside(std::size_t count, NetworkSegment segment) {
  return [count, segment = std::move(segment)](const Tensors& in) {
    const auto own = in.begin() + static_cast<std::ptrdiff_t>(count);
    Tensors out(in.begin(), own);
    for (torch::Tensor& tensor : segment(Tensors(own, in.end()))) out.push_back(std::move(tensor));
    return out;
  };
}

constexpr int kMostFeatures = 1024;  // that a config takes; more are a damaged file's
constexpr std::string_view kScale = "discriminator_";

// The same network at several sizes: "High-Resolution Image Synthesis and Semantic Manipulation with Conditional GANs"
// (Wang et al., 2018); the names discriminator_0, … are those of SPADE's files.
class MultiScale : public Discriminator {
 public:
  explicit MultiScale(std::vector<std::shared_ptr<Discriminator>> scales) : scales_(std::move(scales)) {
    for (std::size_t i = 0; i < scales_.size(); ++i) register_module(fmt::format("{}{}", kScale, i), scales_[i]);
  }

  // Between segments: {x at this scale, logits of those before, what the scale's own segments pass on}.
  DiscriminatorPass pass() override {
    DiscriminatorPass all;
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      DiscriminatorPass one = scales_[i]->pass();
      all.segments.emplace_back([i](const Tensors& in) {
        Tensors out = in;
        if (i > 0) out.front() = half_size(in.front());
        out.push_back(out.front());
        return out;
      });
      for (NetworkSegment& segment : one.segments) all.segments.push_back(beside(i + 1, std::move(segment)));
      all.weights.insert(all.weights.end(), one.weights.begin(), one.weights.end());
    }
    all.segments.emplace_back([](const Tensors& in) { return Tensors(in.begin() + 1, in.end()); });
    return all;
  }

  int size_multiple() const override {
    int multiple = 1;
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      multiple = std::max(multiple, scales_[i]->size_multiple() == 1 ? 1 : scales_[i]->size_multiple() << i);
    }
    return multiple;
  }
  int smallest_px() const override { return scales_.back()->smallest_px() << (scales_.size() - 1); }
  int fixed_px() const override { return scales_.front()->fixed_px(); }

 private:
  std::vector<std::shared_ptr<Discriminator>> scales_;
};

// Of the finest scale, without what says so.
NamedTensors first_scale(const NamedTensors& state) {
  const std::string prefix = fmt::format("{}0.", kScale);
  NamedTensors first;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) first.emplace_back(name.substr(prefix.size()), tensor);
  }
  return first;
}

bool loads_with(const DiscriminatorOptions& options, const NamedTensors& state) {
  try {
    const WithoutInitialisation blank;
    return fits(*make_discriminator(options, 0), state);
  } catch (const Error&) {
    return false;  // no such options
  }
}

std::shared_ptr<Discriminator> make_one(const DiscriminatorOptions& options) {
  for (const DiscriminatorRow& row : kDiscriminators) {
    if (row.name == options.net) return row.make(options);
  }
  fail_usage(fmt::format("discriminator: unknown \"{}\", allowed: unet_sn, patch_vgg, patchgan", options.net));
}

void check_size(const Discriminator& discriminator, const DiscriminatorOptions& options) {
  const int size = options.size_px;
  if (size == 0) return;
  const int multiple = discriminator.size_multiple(), smallest = discriminator.smallest_px();
  if (size % multiple == 0 && size >= smallest) return;
  fail_usage(
      fmt::format("discriminator {}{}: its pictures are {} pixels a side (data.crop_px times model.scale), allowed: {}",
                  options.net, options.scales > 1 ? fmt::format(" at {} scales", options.scales) : "", size,
                  multiple > 1 ? fmt::format("multiples of {} from {} up", multiple, smallest)
                               : fmt::format("{} or more", smallest)));
}

}  // namespace

torch::Tensor add_weight(DiscriminatorPass& pass, SpectralConv2d& conv) {
  const torch::Tensor weight = conv.make_weight();
  pass.weights.push_back(weight);
  if (conv.bias().defined()) pass.weights.push_back(conv.bias());
  return weight;
}

void add_weights(DiscriminatorPass& pass, const torch::nn::Module& layer) {
  for (const torch::Tensor& parameter : layer.parameters()) pass.weights.push_back(parameter);
}

std::vector<torch::Tensor> Discriminator::forward(const torch::Tensor& x) {
  Tensors tensors{x};
  for (const NetworkSegment& segment : pass().segments) tensors = segment(tensors);
  return tensors;
}

std::optional<DiscriminatorOptions> recognise_discriminator(const NamedTensors& state) {
  const int scales = StateShapes(state).count_after(kScale);
  const StateShapes shapes(scales > 0 ? first_scale(state) : state);
  for (const DiscriminatorRow& row : kDiscriminators) {
    auto options = row.detect(shapes);
    if (!options || std::max(options->features, options->channels) > kMostFeatures) continue;
    options->scales = std::max(scales, 1);
    if (loads_with(*options, state)) return options;
  }
  return std::nullopt;
}

std::string describe(const DiscriminatorOptions& options) {
  std::string text = fmt::format("a discriminator, {} with features = {}", options.net, options.features);
  if (options.net == "patchgan") text += fmt::format(", layers = {}, norm = \"{}\"", options.layers, options.norm);
  if (options.scales > 1) text += fmt::format(", scales = {}", options.scales);
  text += fmt::format(", for pictures of {} channel{}", options.channels, options.channels == 1 ? "" : "s");
  if (options.size_px > 0) text += fmt::format(" and {0}x{0} pixels", options.size_px);
  return text;
}

std::shared_ptr<Discriminator> make_discriminator(const DiscriminatorOptions& options, std::uint64_t seed) {
  const WithSeed with_seed(seed);
  if (options.scales == 1) {
    std::shared_ptr<Discriminator> one = make_one(options);
    check_size(*one, options);
    return one;
  }
  if (options.scales < 1) fail_usage(fmt::format("discriminator: scales = {}, allowed: 1 or more", options.scales));
  std::vector<std::shared_ptr<Discriminator>> scales;
  for (int i = 0; i < options.scales; ++i) {
    DiscriminatorOptions at_scale = options;
    at_scale.size_px = halved_up(options.size_px, i);
    scales.push_back(make_one(at_scale));
  }
  auto all = std::make_shared<MultiScale>(std::move(scales));
  check_size(*all, options);
  return all;
}

}  // namespace reelgrad
