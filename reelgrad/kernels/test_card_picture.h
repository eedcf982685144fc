// Pictures on a card for tests of convolutions: they start as NaN, and what lies around them must stay as it was.
#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/conv.h"
#include "reelgrad/kernels/conversion.h"

namespace reelgrad {

inline void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) fail(cudaGetErrorString(error));
}

inline constexpr std::size_t kGuardBytes = 4096;
inline constexpr unsigned char kGuard = 0x5a;

// Bytes on the card between two guards.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) : size_(size) {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, size + 2 * kGuardBytes));
    memory_.reset(static_cast<std::byte*>(memory));
    check_cuda(cudaMemset(memory, kGuard, size + 2 * kGuardBytes));
    check_cuda(cudaMemset(data(), 0xff, size));  // NaN in every floating type
  }

  std::byte* data() const { return memory_.get() + kGuardBytes; }

  void write(const void* from) { check_cuda(cudaMemcpy(data(), from, size_, cudaMemcpyHostToDevice)); }

  template <class T>
  std::vector<T> read() const {
    std::vector<unsigned char> all(size_ + 2 * kGuardBytes);
    check_cuda(cudaMemcpy(all.data(), memory_.get(), all.size(), cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      if (all[i] != kGuard || all[all.size() - 1 - i] != kGuard) ADD_FAILURE() << "written outside, at " << i;
    }
    std::vector<T> values(size_ / sizeof(T));
    std::memcpy(values.data(), all.data() + kGuardBytes, size_);
    return values;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_;
};

inline std::uint16_t narrowed(ElementType element, float v) {
  return element == ElementType::f16 ? half_of_single(v) : bfloat_of_single(v);
}

inline float widened(ElementType element, std::uint16_t v) {
  return element == ElementType::f16 ? single_of_half(v) : single_of_bfloat(v);
}

inline ConvPicture dense(void* data, int n, int h, int w, int c) {
  return {data, n, h, w, c, c, static_cast<std::int64_t>(w) * c, static_cast<std::int64_t>(h) * w * c};
}

// A picture of 16-bit elements on the card, and its values on the host.
class Picture {
 public:
  Picture(ElementType element, int n, int h, int w, int c)
      : values(static_cast<std::size_t>(n) * static_cast<std::size_t>(h) * static_cast<std::size_t>(w) *
               static_cast<std::size_t>(c)),
        bytes_(values.size() * 2),
        element_(element),
        host(dense(values.data(), n, h, w, c)),
        card(dense(bytes_.data(), n, h, w, c)) {}
  Picture(const Picture&) = delete;

  void fill(std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> bits;
    for (float& v : values) {
      bits.push_back(narrowed(element_, normal(random)));
      v = widened(element_, bits.back());
    }
    bytes_.write(bits.data());
  }

  std::vector<float> read() const {
    std::vector<float> result;
    for (const std::uint16_t bits : bytes_.read<std::uint16_t>()) result.push_back(widened(element_, bits));
    return result;
  }

  std::vector<float> values;

 private:
  GuardedBytes bytes_;
  ElementType element_;

 public:
  ConvPicture host, card;
};

inline double relative(const std::vector<float>& ours, const std::vector<float>& reference) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    difference += std::pow(static_cast<double>(ours[i]) - reference[i], 2);
    size += std::pow(static_cast<double>(reference[i]), 2);
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

// Half a unit in the last place: no single value can be further off.
inline double half_unit(ElementType element) {
  return element == ElementType::f16 ? 0x1p-11 : 0x1p-8;
}

}  // namespace reelgrad
