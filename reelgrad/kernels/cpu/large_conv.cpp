#include "reelgrad/kernels/large_conv.h"

#include <algorithm>
#include <array>
#include <vector>

namespace reelgrad::cpu {
namespace {

constexpr int kReach = kLargeSide / 2;

float* pixel_of(const ConvPicture& p, int n, int y, int x) {
  return static_cast<float*>(p.data) + n * p.image_step + y * p.row_step + x * p.pixel_step;
}

template <class Use>
void for_each_pixel_of(const ConvPicture& p, const Use& use) {
  for (int n = 0; n < p.batch; ++n)
    for (int y = 0; y < p.height; ++y)
      for (int x = 0; x < p.width; ++x) use(n, y, x);
}

// Calls use(tap, pixel) for the pixels that the kernel sees from (x, y).
template <class Use>
void for_each_seen(const ConvPicture& p, int n, int y, int x, const Use& use) {
  for (int row = std::max(0, y - kReach); row <= std::min(p.height - 1, y + kReach); ++row) {
    for (int column = std::max(0, x - kReach); column <= std::min(p.width - 1, x + kReach); ++column)
      use(kLargeSide * (row - y + kReach) + column - x + kReach, pixel_of(p, n, row, column));
  }
}

}  // namespace

void large_conv(const LargeWeights& w, const ConvPicture& x, const ConvPicture& y) {
  const auto* const weight = static_cast<const float*>(w.data);
  const auto* const bias = static_cast<const float*>(w.bias.data);
  for_each_pixel_of(x, [&](int n, int row, int column) {
    std::array<double, kLargeChannels> sums{};
    for_each_seen(x, n, row, column, [&](int tap, const float* pixel) {
      for (int out = 0; out < kLargeChannels; ++out)
        for (int in = 0; in < kLargeChannels; ++in)
          sums[static_cast<std::size_t>(out)] +=
              static_cast<double>(pixel[in]) * weight[out * w.out_step + in * w.in_step + tap * w.tap_step];
    });
    const float* const from = pixel_of(x, n, row, column);
    float* const to = pixel_of(y, n, row, column);
    for (std::size_t c = 0; c < sums.size(); ++c)
      to[c] = static_cast<float>(sums[c] + (bias == nullptr ? w.bias.otherwise : bias[c]));
    std::copy(from + kLargeChannels, from + x.channels, to + kLargeChannels);
  });
}

void large_gradients(const LargeGradients& g) {
  constexpr std::size_t kChannels = kLargeChannels;
  const auto place = [](int tap, std::size_t out, std::size_t in) {
    return (static_cast<std::size_t>(tap) * kChannels + out) * kChannels + in;
  };
  std::vector<double> sums(place(kLargeTaps, 0, 0));
  std::array<double, kChannels> biases{};
  for_each_pixel_of(g.x, [&](int n, int row, int column) {
    const float* const dy = pixel_of(g.dy, n, row, column);
    for (std::size_t out = 0; out < kChannels; ++out) biases[out] += dy[out];
    for_each_seen(g.x, n, row, column, [&](int tap, const float* pixel) {
      for (std::size_t out = 0; out < kChannels; ++out)
        for (std::size_t in = 0; in < kChannels; ++in)
          sums[place(tap, out, in)] += static_cast<double>(dy[out]) * pixel[in];
    });
  });
  for (std::size_t out = 0; out < kChannels; ++out) {
    const auto o = static_cast<std::int64_t>(out);
    if (g.bias != nullptr) g.bias[o] = static_cast<float>(biases[out]);
    if (g.weight == nullptr) continue;
    for (std::size_t in = 0; in < kChannels; ++in)
      for (int tap = 0; tap < kLargeTaps; ++tap)
        g.weight[o * g.out_step + static_cast<std::int64_t>(in) * g.in_step + tap * g.tap_step] =
            static_cast<float>(sums[place(tap, out, in)]);
  }
}

}  // namespace reelgrad::cpu
