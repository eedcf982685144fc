#include "reelgrad/kernels/conv.h"

#include <cmath>
#include <vector>

#include "reelgrad/base/error.h"

namespace reelgrad::cpu {
namespace {

float* pixel_at(const ConvPicture& p, int n, int y, int x) {
  return static_cast<float*>(p.data) + n * p.image_step + y * p.row_step + x * p.pixel_step;
}

float vector_element(const ConvVector& v, int i) {
  return v.data == nullptr ? v.otherwise : static_cast<const float*>(v.data)[v.count == 1 ? 0 : i];
}

double logistic(double v) {
  return 1 / (1 + std::exp(-v));
}

double softplus(double v) {
  return v > 30 ? v : std::log1p(std::exp(v));
}

double activated(ConvActivation activation, double v, double slope) {
  switch (activation) {
    case ConvActivation::none:
      return v;
    case ConvActivation::relu:
      return v <= 0 ? 0 : v;
    case ConvActivation::slope:
      return v > 0 ? v : slope * v;
    case ConvActivation::silu:
      return v * logistic(v);
    case ConvActivation::mish:
      return v * std::tanh(softplus(v));
    case ConvActivation::gelu:
      return v * std::erfc(-v * std::sqrt(0.5)) / 2;
    case ConvActivation::sigmoid:
      return logistic(v);
  }
  fail("unknown activation");
}

double derivative(ConvActivation activation, double v, double slope) {
  const double s = logistic(v);
  switch (activation) {
    case ConvActivation::none:
      return 1;
    case ConvActivation::relu:
      return v > 0 ? 1 : 0;
    case ConvActivation::slope:
      return v > 0 ? 1 : slope;
    case ConvActivation::silu:
      return s + v * s * (1 - s);
    case ConvActivation::mish: {
      const double t = std::tanh(softplus(v));
      return t + v * (1 - t * t) * s;
    }
    case ConvActivation::gelu:
      return std::erfc(-v * std::sqrt(0.5)) / 2 + v * std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0));
    case ConvActivation::sigmoid:
      return s * (1 - s);
  }
  fail("unknown activation");
}

// Calls use(ky, kx, pixel) for the neighbours that lie in the picture.
template <class Use>
void for_each_tap(const ConvPicture& p, int n, int y, int x, const Use& use) {
  for (int ky = 0; ky < 3; ++ky) {
    for (int kx = 0; kx < 3; ++kx) {
      const int row = y + ky - 1, column = x + kx - 1;
      if (row >= 0 && row < p.height && column >= 0 && column < p.width) use(3 * ky + kx, pixel_at(p, n, row, column));
    }
  }
}

template <class Use>
void for_each_pixel(const ConvPicture& p, const Use& use) {
  for (int n = 0; n < p.batch; ++n)
    for (int y = 0; y < p.height; ++y)
      for (int x = 0; x < p.width; ++x) use(n, y, x);
}

// One output channel at one pixel, without bias.
double convolved(const ConvWeights& w, const ConvPicture& input, int n, int y, int x, int out) {
  const auto* weight = static_cast<const float*>(w.weight);
  double sum = 0;
  for_each_tap(input, n, y, x, [&](int tap, const float* pixel) {
    for (int in = 0; in < w.in; ++in)
      sum += static_cast<double>(pixel[in]) * weight[out * w.out_step + in * w.in_step + tap * w.tap_step];
  });
  return sum;
}

}  // namespace

void conv3x3(const ConvWeights& weights, const ConvPicture& x, ConvActivation activation, const ConvPicture& y,
             const ConvPicture& z) {
  for_each_pixel(x, [&](int n, int row, int column) {
    for (int out = 0; out < weights.out; ++out) {
      const double v = convolved(weights, x, n, row, column, out) + vector_element(weights.bias, out);
      if (z.data != nullptr) pixel_at(z, n, row, column)[out] = static_cast<float>(v);
      pixel_at(y, n, row, column)[out] =
          static_cast<float>(activated(activation, v, vector_element(weights.slope, out)));
    }
  });
}

void conv3x3_backward(const ConvWeights& backward, const ConvPicture& dz, ConvActivation activation,
                      const ConvPicture& z_below, const ConvPicture& dz_below, float* bias, float* slope) {
  const auto channels = static_cast<std::size_t>(backward.out);
  std::vector<double> biases(channels), slopes(channels);
  for_each_pixel(dz, [&](int n, int row, int column) {
    for (std::size_t c = 0; c < channels; ++c) {
      const int out = static_cast<int>(c);
      const double g = convolved(backward, dz, n, row, column, out);
      const double z = z_below.data == nullptr ? 0 : pixel_at(z_below, n, row, column)[c];
      const double factor =
          z_below.data == nullptr ? 1 : derivative(activation, z, vector_element(backward.slope, out));
      pixel_at(dz_below, n, row, column)[c] = static_cast<float>(g * factor);
      biases[c] += g * factor;
      if (activation == ConvActivation::slope && !(z > 0)) slopes[c] += g * z;
    }
  });
  for (std::size_t c = 0; c < channels; ++c) {
    if (bias != nullptr) bias[c] = static_cast<float>(biases[c]);
    if (slope != nullptr) slope[c] = static_cast<float>(slopes[c]);
  }
}

void conv_weight_gradient(const ConvWeightGradient& g) {
  const auto place = [&](int out, int in, int tap) {
    return (static_cast<std::size_t>(out) * static_cast<std::size_t>(g.in) + static_cast<std::size_t>(in)) * 9 +
           static_cast<std::size_t>(tap);
  };
  std::vector<double> sums(place(g.out, 0, 0));
  for_each_pixel(g.x, [&](int n, int row, int column) {
    const float* dz = pixel_at(g.dz, n, row, column);
    for_each_tap(g.x, n, row, column, [&](int tap, const float* pixel) {
      for (int out = 0; out < g.out; ++out)
        for (int in = 0; in < g.in; ++in) sums[place(out, in, tap)] += static_cast<double>(dz[out]) * pixel[in];
    });
  });
  for (int out = 0; out < g.out; ++out)
    for (int in = 0; in < g.in; ++in)
      for (int tap = 0; tap < 9; ++tap)
        g.gradient[out * g.out_step + in * g.in_step + tap * g.tap_step] =
            static_cast<float>(sums[place(out, in, tap)]);
}

}  // namespace reelgrad::cpu
