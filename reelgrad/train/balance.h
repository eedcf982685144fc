// Whether generator and discriminator are a match for each other.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace reelgrad {

// Means over the steps between two records.
struct BalanceReading {
  double real = 0, fake = 0;           // the discriminator's logits of real and of made pictures
  double right = 0;                    // share of its logits that are right, 0.5: it guesses
  double generator_gradient_norm = 0;  // NaN where the generator took no step
};

// dominates: the discriminator is right nearly everywhere, so that the generator learns little from it. guesses: it has
// collapsed, or the generator got away from it: what it says is noise.
enum class Balance { even, dominates, guesses };

inline constexpr double kDominates = 0.98, kGuesses = 0.52;  // share of right logits from which and up to which

Balance judge(const BalanceReading& reading);

// Follows a run's records and says so when one of the two states has lasted for `patience` steps; then again after as
// many, as long as it lasts.
class BalanceWatch {
 public:
  explicit BalanceWatch(std::int64_t patience) : patience_(patience) {}

  // The record of step `step`, rising. The warning: what is wrong, the numbers, and which keys to change; nullopt: none
  // is due.
  std::optional<std::string> add(std::int64_t step, const BalanceReading& reading);

 private:
  std::int64_t patience_;
  std::int64_t last_step_ = 0;
  Balance state_ = Balance::even;
  std::int64_t since_ = 0;  // the state's first step, or that of the last warning
};

}  // namespace reelgrad
