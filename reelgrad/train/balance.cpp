#include "reelgrad/train/balance.h"

#include <fmt/format.h>

#include <cmath>

namespace reelgrad {
namespace {

std::string numbers(const BalanceReading& reading) {
  const std::string norm =
      std::isfinite(reading.generator_gradient_norm)
          ? fmt::format(", norm of the generator's gradient {:.3g}", reading.generator_gradient_norm)
          : "";
  return fmt::format("right in {:.1f} %, D(real) {:.3g}, D(fake) {:.3g}{}", 100 * reading.right, reading.real,
                     reading.fake, norm);
}

std::string warning(Balance state, std::int64_t patience, const BalanceReading& reading) {
  if (state == Balance::dominates) {
    return fmt::format(
        "the discriminator dominates: for {} steps it has told real from made pictures nearly everywhere ({}), so the "
        "generator learns little from it. Try half of discriminator.optimizer.lr, loss.gan.label_smoothing = 0.1, "
        "discriminator.r1 = 1, or fewer discriminator.features",
        patience, numbers(reading));
  }
  return fmt::format(
      "the discriminator guesses: for {} steps it has not told real from made pictures ({}), so what it gives the "
      "generator is noise. Try discriminator.init_iters = 1000 or a discriminator.pretrained, twice "
      "discriminator.optimizer.lr, or half of loss.gan.weight",
      patience, numbers(reading));
}

}  // namespace

Balance judge(const BalanceReading& reading) {
  if (reading.right >= kDominates) return Balance::dominates;
  if (reading.right <= kGuesses) return Balance::guesses;
  return Balance::even;
}

std::optional<std::string> BalanceWatch::add(std::int64_t step, const BalanceReading& reading) {
  const Balance now = judge(reading);
  if (now != state_) since_ = last_step_;  // the record's steps belong to it
  state_ = now;
  last_step_ = step;
  if (now == Balance::even || step - since_ < patience_) return std::nullopt;
  const std::int64_t lasted = step - since_;
  since_ = step;
  return warning(now, lasted, reading);
}

}  // namespace reelgrad
