#include "reelgrad/restore/overlap_measure.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <span>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/restore/tile_plan.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

// Half a code, less what other pictures and half precision may add.
constexpr double kTolerance = 0.3 / 255;
constexpr int kContext = 16;                 // around the tile, in the whole
constexpr int kDepths[] = {16, 32, 64, 96};  // how far into a tile is looked, in turn: more costs more

// [2, (T,) C, H, W]: fine noise, and noise of 8×8 cells.
torch::Tensor test_pictures(const Network& network, const NetworkInfo& info, int side) {
  auto generator = at::detail::createCPUGenerator(/*seed=*/1);
  const int frames = info.window;
  const std::vector<std::int64_t> sizes{frames, info.in_channels, side, side};
  const torch::Tensor fine = at::rand(sizes, generator, torch::kFloat32);
  const torch::Tensor cells =
      at::rand({frames, info.in_channels, (side + 7) / 8, (side + 7) / 8}, generator, torch::kFloat32);
  const torch::Tensor coarse =
      at::upsample_nearest2d(cells, {(side + 7) / 8 * 8, (side + 7) / 8 * 8}).narrow(2, 0, side).narrow(3, 0, side);
  torch::Tensor both = torch::stack({fine, coarse});
  if (frames == 1) both = both.squeeze(1);
  const auto parameters = network.parameters();
  return parameters.empty() ? both : both.to(parameters.front().device());
}

// [side / 2]: the largest difference between a tile and the whole, by distance from the tile's edge in input pixels.
std::vector<double> differences(Network& network, const NetworkInfo& info, int depth) {
  const int context = round_up(kContext, info.size_multiple), side = 2 * depth;
  const torch::Tensor pictures = test_pictures(network, info, side + 2 * context);
  const std::int64_t last = pictures.dim() - 1, scale = info.scale;
  const torch::Tensor tile = pictures.narrow(last, context, side).narrow(last - 1, context, side).contiguous();
  torch::Tensor whole = network.forward(pictures), alone = network.forward(tile);
  whole = whole.narrow(-1, context * scale, side * scale).narrow(-2, context * scale, side * scale);
  const torch::Tensor difference =
      (whole - alone).abs().reshape({-1, side * scale, side * scale}).amax(0).cpu();  // [side', side']
  std::vector<double> largest;
  for (std::int64_t d = 0; d < depth; ++d) {
    const auto inside = [&](std::int64_t from) {
      return difference.slice(0, from, side * scale - from).slice(1, from, side * scale - from);
    };
    // The ring at distance d: the square from d on, less the one from d + 1 on.
    const torch::Tensor square = inside(d * scale);
    const std::int64_t n = square.size(0);
    const double ring =
        std::max({square.slice(0, 0, scale).max().item<double>(), square.slice(0, n - scale, n).max().item<double>(),
                  square.slice(1, 0, scale).max().item<double>(), square.slice(1, n - scale, n).max().item<double>()});
    largest.push_back(ring);
  }
  return largest;
}

// The first distance from which on all differences are small.
int small_from(const std::vector<double>& largest) {
  auto distance = static_cast<int>(largest.size());
  while (distance > 0 && largest[static_cast<std::size_t>(distance) - 1] <= kTolerance) --distance;
  return distance;
}

fs::path file_of(const std::string& hash) {
  return cache_folder() / "overlap" / hash;
}

}  // namespace

std::optional<int> measure_overlap(Network& network) {
  const torch::NoGradGuard no_grad;
  const NetworkInfo info = network.info();
  const int radius = round_up(info.receptive_radius_px, info.size_multiple);
  for (const int wanted_depth : kDepths) {
    const int depth = round_up(std::min(wanted_depth, std::max(radius, 1)), info.size_multiple);
    const int distance = small_from(differences(network, info, depth));
    // What lies deeper was not seen: a quarter of the depth must have been quiet, or be beyond the radius.
    const bool sure = distance <= depth * 3 / 4 || (depth >= radius && !info.whole_picture);
    for (int overlap = 0; sure && overlap <= depth; overlap += info.size_multiple) {
      if (overlap - fade_of(overlap, radius) / 2 >= distance) return overlap;
    }
    if (depth >= radius && !info.whole_picture) return radius;
  }
  return std::nullopt;
}

std::string weights_hash(const Network& network) {
  std::string text;
  for (const auto& [name, tensor] : state_dict(network)) {
    const torch::Tensor values = tensor.cpu().contiguous();
    text += name + xxh3_128_hex({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }
  return xxh3_128_hex(std::as_bytes(std::span(text)));
}

std::optional<int> known_overlap(const std::string& weights_hash) {
  try {
    const fs::path file = file_of(weights_hash);
    if (!fs::is_regular_file(file)) return std::nullopt;
    const std::string text = read_file(file);
    int overlap = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), overlap);
    constexpr int kMost = 4096;
    if (problem == std::errc() && overlap >= 0 && overlap <= kMost) return overlap;
  } catch (const std::exception& error) {  // it is measured again
    log::debug(fmt::format("the overlap of tiles cannot be looked up: {}", error.what()));
  }
  return std::nullopt;
}

void keep_overlap(const std::string& weights_hash, int overlap_px) {
  try {
    const fs::path file = file_of(weights_hash);
    fs::create_directories(file.parent_path());
    write_file_atomically(file, fmt::format("{}\n", overlap_px));
  } catch (const std::exception& error) {  // it is measured again next time
    log::debug(fmt::format("the overlap of tiles cannot be kept: {}", error.what()));
  }
}

}  // namespace reelgrad
