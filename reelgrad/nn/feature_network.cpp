#include "reelgrad/nn/feature_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/sha256.h"
#include "reelgrad/config/feature_files.h"
#include "reelgrad/nn/conv_act.h"
#include "reelgrad/nn/weights_file.h"

namespace reelgrad {
namespace {

const PublishedFile& published_file(Backbone backbone) {
  if (backbone == Backbone::vgg19) return kVgg19File;
  return backbone == Backbone::vgg16 ? kVgg16File : kAlexnetFile;
}

void warn_of_another_file(Backbone backbone, const std::filesystem::path& file) {
  const PublishedFile& published = published_file(backbone);
  const std::string hash = sha256_of_file(file);
  if (hash.starts_with(published.sha256_start)) return;
  log::warning(fmt::format(
      "{} is not torchvision's {} (its SHA-256 begins with {}, not {}): the losses that look through it have other "
      "values than those that are published",
      file.string(), published.name, hash.substr(0, published.sha256_start.size()), published.sha256_start));
}

torch::Tensor weight_of(const std::map<std::string, torch::Tensor>& tensors, const std::string& name,
                        torch::IntArrayRef sizes, const std::filesystem::path& file, Backbone backbone) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    fail(fmt::format("{} is not the network of torchvision's {}: {} is missing", file.string(),
                     published_file(backbone).name, name));
  }
  if (found->second.sizes() != sizes) {
    fail(fmt::format("{} is not the network of torchvision's {}: {} is [{}], needed: [{}]", file.string(),
                     published_file(backbone).name, name, fmt::join(found->second.sizes(), ", "),
                     fmt::join(sizes, ", ")));
  }
  return found->second;
}

// torch's own gradient of a pooling on a card adds in any order: where the same bits are asked for it is the largest
// along one dimension.
torch::Tensor largest_of_squares(const torch::Tensor& x, int kernel) {
  if (!x.is_cuda() || !at::globalContext().deterministicAlgorithms()) return at::max_pool2d(x, kernel, 2);
  return std::get<0>(x.unfold(2, kernel, 2).unfold(3, kernel, 2).flatten(-2).max(-1));
}

// DISTS's: the root of the mean square under a Hann window of 3x3. In float32, for squares leave fp16's range.
torch::Tensor l2_of_squares(const torch::Tensor& x) {
  const bool half = x.scalar_type() == torch::kHalf || x.scalar_type() == torch::kBFloat16;
  const torch::Tensor squares = half ? x.to(torch::kFloat32).square() : x.square();
  // The window is (1, 2, 1) / 4 along both sides: sums of every other pixel's neighbours.
  const auto along = [](const torch::Tensor& padded, std::int64_t dim) {
    const std::int64_t out = (padded.size(dim) - 3) / 2 + 1;
    const auto every_other = [&](std::int64_t first) { return padded.slice(dim, first, first + 2 * out - 1, 2); };
    return 0.25 * (every_other(0) + every_other(2)) + 0.5 * every_other(1);
  };
  const torch::Tensor padded = at::constant_pad_nd(squares, {1, 1, 1, 1});
  return (along(along(padded, 2), 3) + 1e-12).sqrt().to(x.scalar_type());
}

}  // namespace

std::vector<FeatureNetwork::Layer> FeatureNetwork::layers_of(Backbone backbone) {
  using Kind = Layer::Kind;
  std::vector<Layer> layers;
  const auto conv = [&](int in, int out, int kernel, int stride, int padding) {
    layers.push_back({Kind::conv, in, out, kernel, stride, padding});
    layers.push_back({Kind::relu});
  };
  if (backbone == Backbone::alexnet) {
    conv(3, 64, 11, 4, 2);
    layers.push_back({.kind = Kind::pool, .kernel = 3});
    conv(64, 192, 5, 1, 2);
    layers.push_back({.kind = Kind::pool, .kernel = 3});
    conv(192, 384, 3, 1, 1);
    conv(384, 256, 3, 1, 1);
    conv(256, 256, 3, 1, 1);
    return layers;
  }
  int channels = 3;
  for (int block = 0; block < 5; ++block) {
    const int convs = block < 2 ? 2 : backbone == Backbone::vgg19 ? 4 : 3;
    const int out = std::min(64 << block, 512);
    for (int i = 0; i < convs; ++i, channels = out) conv(channels, out, 3, 1, 1);
    layers.push_back({.kind = Kind::pool, .kernel = 2});
  }
  return layers;
}

FeatureNetwork::FeatureNetwork(const FeatureNetworkOptions& options, const std::filesystem::path& file)
    : options_(options), layers_(layers_of(options.backbone)) {
  layers_.resize(static_cast<std::size_t>(options.taps.back()) + 1);
  const WeightsFile weights = read_weights(file);
  const std::map<std::string, torch::Tensor> tensors(weights.tensors.begin(), weights.tensors.end());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (layer.kind != Layer::Kind::conv) continue;
    const std::string name = fmt::format("features.{}", i);
    read_.push_back(weight_of(tensors, name + ".weight", {layer.out, layer.in, layer.kernel, layer.kernel}, file,
                              options.backbone));
    read_.push_back(weight_of(tensors, name + ".bias", {layer.out}, file, options.backbone));
  }
  warn_of_another_file(options.backbone, file);
}

void FeatureNetwork::place(torch::Device device, torch::ScalarType type) {
  if (!placed_.empty() && placed_.front().device() == device && placed_.front().scalar_type() == type) return;
  placed_.clear();
  for (const torch::Tensor& tensor : read_) {
    const bool turn = device.is_cuda() && tensor.dim() == 4;
    placed_.push_back(tensor.detach()
                          .to(device, type)
                          .contiguous(turn ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous));
  }
}

bool FeatureNetwork::is_tap(int index) const {
  return std::ranges::find(options_.taps, index) != options_.taps.end();
}

torch::Tensor FeatureNetwork::apply(int index, const torch::Tensor& x, bool rectified) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  if (layer.kind == Layer::Kind::relu) return at::relu(x);
  if (layer.kind == Layer::Kind::pool) {
    return options_.l2_pooling ? l2_of_squares(x) : largest_of_squares(x, layer.kernel);
  }
  const auto before = std::count_if(layers_.begin(), layers_.begin() + index,
                                    [](const Layer& other) { return other.kind == Layer::Kind::conv; });
  const torch::Tensor& weight = placed_[static_cast<std::size_t>(2 * before)];
  const torch::Tensor& bias = placed_[static_cast<std::size_t>(2 * before + 1)];
  if (layer.kernel == 3) return conv3x3_act(x, weight, bias, rectified ? Activation::relu : Activation::none);
  torch::Tensor y = at::conv2d(x, weight, bias, layer.stride, layer.padding);
  return rectified ? at::relu_(y) : y;
}

// Layers from `first` to before `end`. {x, taps so far} -> the same; without x where it is the last tap (no tensor may
// pass twice), and where no layer needs it any more.
std::vector<torch::Tensor> FeatureNetwork::run(int first, int end, const std::vector<torch::Tensor>& in) const {
  const bool begins_at_tap = is_tap(first - 1);
  torch::Tensor x = begins_at_tap ? in.back() : in.front();
  std::vector<torch::Tensor> out(in.begin() + (begins_at_tap ? 0 : 1), in.end());
  for (int i = first; i < end; ++i) {
    const bool rectified =
        i + 1 < end && layers_[static_cast<std::size_t>(i) + 1].kind == Layer::Kind::relu && !is_tap(i);
    x = apply(i, x, rectified);
    if (rectified) ++i;
    if (is_tap(i)) out.push_back(x);
  }
  if (end < std::ssize(layers_) && !is_tap(end - 1)) out.insert(out.begin(), x);
  return out;
}

std::vector<NetworkSegment> FeatureNetwork::segments() const {
  std::vector<int> starts;
  for (int i = 0; i < std::ssize(layers_); ++i) {
    if (layers_[static_cast<std::size_t>(i)].kind == Layer::Kind::conv) starts.push_back(i);
  }
  starts.push_back(static_cast<int>(layers_.size()));
  std::vector<NetworkSegment> list;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    list.emplace_back([this, first = starts[i], end = starts[i + 1]](const std::vector<torch::Tensor>& in) {
      return run(first, end, in);
    });
  }
  return list;
}

}  // namespace reelgrad
