#include "reelgrad/kernels/channel_norm.h"

#include <cmath>
#include <vector>

namespace reelgrad::cpu {
namespace {

// A pixel's values less their mean and divided by their deviation.
struct Normed {
  std::vector<double> values;
  double scale = 0;  // one divided by the deviation
};

const float* values_at(const Pixels& pixels, std::int64_t pixel) {
  return static_cast<const float*>(pixels.data) + pixel * pixels.channels;
}

float* written_at(const Pixels& pixels, std::int64_t pixel) {
  return static_cast<float*>(pixels.data) + pixel * pixels.channels;
}

double element_of(const ConvVector& v, std::size_t i) {
  return v.data == nullptr ? v.otherwise : static_cast<const float*>(v.data)[v.count == 1 ? 0 : i];
}

Normed normed(const Pixels& x, std::int64_t pixel, float epsilon) {
  const float* const from = values_at(x, pixel);
  Normed result{.values = std::vector<double>(from, from + x.channels)};
  double sum = 0, squares = 0;
  for (const double v : result.values) sum += v;
  for (double& v : result.values) {
    v -= sum / x.channels;
    squares += v * v;
  }
  result.scale = 1 / std::sqrt(squares / x.channels + epsilon);
  for (double& v : result.values) v *= result.scale;
  return result;
}

}  // namespace

void channel_norm(const ChannelNorm& norm) {
  for (std::int64_t pixel = 0; pixel < norm.x.count; ++pixel) {
    const Normed n = normed(norm.x, pixel, norm.epsilon);
    float* const y = written_at(norm.y, pixel);
    for (std::size_t c = 0; c < n.values.size(); ++c)
      y[c] = static_cast<float>(n.values[c] * element_of(norm.weight, c) + element_of(norm.bias, c));
  }
}

void channel_norm_backward(const ChannelNormBackward& norm) {
  const auto channels = static_cast<std::size_t>(norm.x.channels);
  std::vector<double> weights(channels), biases(channels), inner(channels);
  for (std::int64_t pixel = 0; pixel < norm.x.count; ++pixel) {
    const Normed n = normed(norm.x, pixel, norm.epsilon);
    const float* const dy = values_at(norm.dy, pixel);
    double sum = 0, product = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      weights[c] += dy[c] * n.values[c];
      biases[c] += dy[c];
      inner[c] = dy[c] * element_of(norm.weight, c);
      sum += inner[c];
      product += inner[c] * n.values[c];
    }
    if (norm.dx.data == nullptr) continue;
    for (std::size_t c = 0; c < channels; ++c)
      written_at(norm.dx, pixel)[c] =
          static_cast<float>(n.scale * (inner[c] - (sum + n.values[c] * product) / static_cast<double>(channels)));
  }
  for (std::size_t c = 0; c < channels; ++c) {
    if (norm.of_weight != nullptr) norm.of_weight[c] = static_cast<float>(weights[c]);
    if (norm.of_bias != nullptr) norm.of_bias[c] = static_cast<float>(biases[c]);
  }
}

}  // namespace reelgrad::cpu
