#include "reelgrad/train/balance.h"

#include <gmock/gmock.h>

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr BalanceReading kEven{.real = 0.5, .fake = -0.4, .right = 0.75, .generator_gradient_norm = 0.1};
constexpr BalanceReading kSure{.real = 9, .fake = -8, .right = 0.995, .generator_gradient_norm = 0.01};
constexpr BalanceReading kLost{.real = 0.01, .fake = 0.012, .right = 0.5, .generator_gradient_norm = 0.2};

TEST(Balance, IsJudgedByTheShareOfRightLogits) {
  EXPECT_EQ(judge(kEven), Balance::even);
  EXPECT_EQ(judge(kSure), Balance::dominates);
  EXPECT_EQ(judge(kLost), Balance::guesses);
}

TEST(BalanceWatch, NamesAStateThatHasLasted) {
  BalanceWatch watch(1000);
  EXPECT_FALSE(watch.add(500, kSure));
  const auto warning = watch.add(1000, kSure);
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, AllOf(HasSubstr("dominates"), HasSubstr("1000 steps"), HasSubstr("99.5 %"),
                              HasSubstr("D(real) 9"), HasSubstr("discriminator.optimizer.lr")));
  EXPECT_FALSE(watch.add(1500, kSure));
  EXPECT_TRUE(watch.add(2000, kSure));
}

TEST(BalanceWatch, ForgetsAStateThatHasEnded) {
  BalanceWatch watch(1000);
  watch.add(500, kLost);
  EXPECT_FALSE(watch.add(1000, kEven));
  EXPECT_FALSE(watch.add(1500, kLost));
  EXPECT_FALSE(watch.add(1900, kLost));
  const auto warning = watch.add(2000, kLost);
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, AllOf(HasSubstr("guesses"), HasSubstr("1000 steps"), HasSubstr("init_iters")));
}

TEST(BalanceWatch, OneStateAfterTheOtherBeginsAnew) {
  BalanceWatch watch(1000);
  watch.add(900, kSure);
  EXPECT_FALSE(watch.add(1100, kLost));
  EXPECT_TRUE(watch.add(1900, kLost));
}

}  // namespace
}  // namespace reelgrad
