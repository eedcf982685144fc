#include "reelgrad/restore/tile_function.h"

#include <torch/torch.h>

#include "reelgrad/restore/enlarge.h"

namespace reelgrad {
namespace {

// One of the 8 flips and turns of the last two sides, and its inverse.
torch::Tensor turned(torch::Tensor x, int turn) {
  if (turn & 1) x = x.flip(-1);
  if (turn & 2) x = x.flip(-2);
  return turn & 4 ? x.transpose(-1, -2) : x;
}

torch::Tensor turned_back(torch::Tensor x, int turn) {
  if (turn & 4) x = x.transpose(-1, -2);
  if (turn & 2) x = x.flip(-2);
  return turn & 1 ? x.flip(-1) : x;
}

constexpr int kTurns = 8;

}  // namespace

torch::Tensor TileFunction::run_network(const torch::Tensor& tiles) const {
  // Convolutions take four sides in this order without turning them around.
  const torch::Tensor input =
      tiles.dim() == 4 ? tiles.contiguous(torch::MemoryFormat::ChannelsLast) : tiles.contiguous();
  const torch::Tensor output = network->forward(input);
  return info.all_frames ? output : output.unsqueeze(1);
}

torch::Tensor TileFunction::run_ensemble(const torch::Tensor& tiles) const {
  torch::Tensor sum;
  for (int turn = 0; turn < kTurns; ++turn) {
    const torch::Tensor part = turned_back(run_network(turned(tiles, turn)), turn).to(torch::kFloat32);
    sum = sum.defined() ? sum.add_(part) : part.clone();
  }
  return sum.div_(kTurns).to(type);
}

torch::Tensor TileFunction::seen_by_network(const torch::Tensor& tiles) const {
  if (!enlarges_chroma) return tiles;
  const std::int64_t channel_dim = tiles.dim() - 3;
  const torch::Tensor luma = tiles.narrow(channel_dim, 0, 1);
  const bool noise_level = tiles.size(channel_dim) > channels();
  return noise_level ? at::cat({luma, tiles.narrow(channel_dim, 3, 1)}, channel_dim) : luma;
}

// `restored` [N, outputs, C, H', W'], and what goes with it.
torch::Tensor TileFunction::finished(torch::Tensor restored, const torch::Tensor& tiles) const {
  if (strength == 1 && !enlarges_chroma) return restored;
  // The frames that were restored, as they came, at the new size.
  torch::Tensor frames = tiles.dim() == 4 ? tiles.unsqueeze(1) : tiles;
  if (!info.all_frames) frames = frames.narrow(1, frames.size(1) / 2, 1);
  frames = frames.narrow(2, 0, channels());
  const torch::Tensor large =
      enlarge_bicubic(frames.flatten(0, 1), info.scale).unflatten(0, {frames.size(0), frames.size(1)});
  if (strength != 1) restored = at::lerp(large.narrow(2, 0, info.out_channels), restored, strength);
  return enlarges_chroma ? at::cat({restored, large.narrow(2, 1, 2)}, 2) : restored;
}

torch::Tensor TileFunction::operator()(const torch::Tensor& tiles) const {
  const torch::Tensor seen = seen_by_network(tiles);
  return finished(ensemble ? run_ensemble(seen) : run_network(seen), tiles);
}

torch::Tensor TileFunction::first(const torch::Tensor& part) const {
  return stages->first(seen_by_network(part).contiguous());
}

torch::Tensor TileFunction::second(const std::vector<torch::Tensor>& parts, const torch::Tensor& tiles) const {
  const torch::Tensor output = stages->second(parts, seen_by_network(tiles).contiguous());
  return finished(info.all_frames ? output : output.unsqueeze(1), tiles);
}

}  // namespace reelgrad
