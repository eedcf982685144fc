#include "reelgrad/clip/timeline.h"

#include <cmath>

#include <numeric>

namespace reelgrad {
namespace {

using Wide = __int128;

// Divisible by 24000, 25000 / 1000, 30000, 48000, 60000, 90000 and 120000.
constexpr std::int64_t kUsualRate = 720000;
constexpr std::int64_t kLargestRate = (std::int64_t{1} << 31) - 1;  // what containers can state

std::int64_t rate_for(Rational fps) {
  if (fps.num <= 0) return kUsualRate;
  const Wide common = Wide{kUsualRate} / std::gcd(kUsualRate, fps.num) * fps.num;
  return common <= kLargestRate ? static_cast<std::int64_t>(common) : kUsualRate;
}

}  // namespace

Timeline::Timeline(Rational fps)
    : rate_(rate_for(fps)),
      default_duration_(fps.num > 0 && fps.den > 0 ? Rational{fps.den, fps.num} : Rational{1, 25}) {}

std::int64_t Timeline::now() const {
  return at_.ticks + (2 * Wide{at_.rest.num} >= at_.rest.den ? 1 : 0);
}

void Timeline::advance(Rational duration) {
  if (duration.num <= 0 || duration.den <= 0) duration = default_duration_;
  const Wide exact = Wide{duration.num} * rate_;
  at_.ticks += static_cast<std::int64_t>(exact / duration.den);
  const std::int64_t rest = static_cast<std::int64_t>(exact % duration.den);
  if (rest == 0) return;

  const std::int64_t divisor = std::gcd(at_.rest.den, duration.den);
  Wide den = Wide{at_.rest.den} / divisor * duration.den;
  Wide num = Wide{at_.rest.num} * (duration.den / divisor) + Wide{rest} * (at_.rest.den / divisor);
  while (den > std::int64_t{1} << 40) {  // unlike denominators pile up: give up below 2^-40 of a tick
    den /= 2;
    num /= 2;
  }
  at_.ticks += static_cast<std::int64_t>(num / den);
  const auto part = static_cast<std::int64_t>(num % den);
  const auto whole = static_cast<std::int64_t>(den);
  const std::int64_t common = std::gcd(part, whole);
  at_.rest = {part / common, whole / common};
}

bool fits_rate(Rational duration, Rational fps) {
  if (duration.num <= 0 || duration.den <= 0 || fps.num <= 0 || fps.den <= 0) return false;
  const double seconds = static_cast<double>(duration.num) / static_cast<double>(duration.den);
  return std::abs(seconds - static_cast<double>(fps.den) / static_cast<double>(fps.num)) <= 0.001;
}

}  // namespace reelgrad
