// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
// A draw is a pure function of (key, counter): nothing to save, nothing to advance.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace reelgrad {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline PhiloxBlock philox(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The sequence of draws that belongs to (seed, purpose, index): two purposes or indices never share draws.
class PhiloxStream {
 public:
  PhiloxStream(std::uint64_t seed, std::uint32_t purpose, std::uint64_t index)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        counter_{0, purpose, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32)} {}

  std::uint32_t next() {
    if (used_ == 4) {
      block_ = philox(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }

  // Uniform in [0, bound), bound > 0, below 2^32. The bias (bound / 2^32) is below what training can see.
  std::int64_t below(std::int64_t bound) { return below(next(), bound); }
  static std::int64_t below(std::uint32_t draw, std::int64_t bound) {
    return static_cast<std::int64_t>((std::uint64_t{draw} * static_cast<std::uint64_t>(bound)) >> 32);
  }

  // Uniform in [0, 1).
  double uniform() { return next() * 0x1p-32; }

 private:
  std::array<std::uint32_t, 2> key_;
  PhiloxBlock counter_;
  PhiloxBlock block_{};
  unsigned used_ = 4;
};

// Fisher and Yates' shuffle by the stream's next draws, of fewer than 2^32 items.
template <class T>
void shuffle(std::vector<T>& items, PhiloxStream& stream) {
  for (std::size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[static_cast<std::size_t>(stream.below(static_cast<std::int64_t>(left)))]);
  }
}

}  // namespace reelgrad
