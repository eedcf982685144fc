#include "reelgrad/base/dynamic_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace reelgrad {
namespace {

using ::testing::HasSubstr;

TEST(DynamicLibrary, CallsAFunction) {
  const DynamicLibrary math("libm.so.6");
  ASSERT_TRUE(math) << math.error();
  auto* root = math.function<double(double)>("sqrt");
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(root(9.0), 3.0);
  EXPECT_EQ(math.function<void()>("no_such_function"), nullptr);
}

TEST(DynamicLibrary, SaysWhyItCannotBeOpened) {
  const DynamicLibrary missing("/nonexistent/liba.so");
  EXPECT_FALSE(missing);
  EXPECT_THAT(missing.error(), HasSubstr("/nonexistent/liba.so"));
  EXPECT_EQ(missing.function<void()>("f"), nullptr);
}

TEST(DynamicLibrary, KnowsWhatIsMapped) {
  const auto libc = mapped_library("libc.so.6");
  ASSERT_TRUE(libc);
  EXPECT_TRUE(std::filesystem::exists(*libc));
  EXPECT_EQ(library_of(reinterpret_cast<const void*>(&std::getenv)).filename(), "libc.so.6");
  EXPECT_FALSE(mapped_library("libno_such.so.1"));
}

TEST(Environment, DefaultsYieldToTheUser) {
  set_environment("REELGRAD_TEST_VALUE", "ours");
  set_environment_default("REELGRAD_TEST_VALUE", "default");
  EXPECT_STREQ(std::getenv("REELGRAD_TEST_VALUE"), "ours");
}

}  // namespace
}  // namespace reelgrad
