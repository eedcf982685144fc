#include "reelgrad/doctor/torch/fat_binary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/doctor/testing/elf_builder.h"

namespace reelgrad {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr std::uint64_t kSpecific = 0x100000, kFamily = 0x200000;

class FatBinaries : public ::testing::Test {
 protected:
  std::optional<std::vector<std::string>> architectures_of(const std::string& section) const {
    ElfFile file(folder_.write("library.so", test::elf_file({.sections = {{".nv_fatbin", section}}})));
    return fat_binary_architectures(file);
  }
  std::vector<std::string> flags_of(const std::string& rodata) const {
    ElfFile file(folder_.write("library.so", test::elf_file({.sections = {{".rodata", rodata}}})));
    return architecture_flags(file);
  }

  test::TemporaryFolder folder_;
};

TEST_F(FatBinaries, NameTheirArchitectures) {
  EXPECT_THAT(architectures_of(test::fat_binary({{1, 120},
                                                 {2, 120, 0x1008011, 112},
                                                 {2, 90, kSpecific | 0x8011},
                                                 {2, 75},
                                                 {2, 100, kFamily},
                                                 {2, 80},
                                                 {2, 80}})),
              Optional(ElementsAre("sm_75", "sm_80", "sm_90a", "sm_100f", "sm_120", "compute_120")));
}

TEST_F(FatBinaries, WhatOnlyAFewKernelsHaveDoesNotCount) {
  std::string section;
  for (int i = 0; i < 5; ++i) section += test::fat_binary({{2, 80}, {2, 90}});
  section += test::fat_binary({{2, 80}, {2, 90}, {2, 121, kSpecific}});
  section += test::fat_binary({{2, 90, kSpecific}});
  EXPECT_THAT(architectures_of(section), Optional(ElementsAre("sm_80", "sm_90")));
}

TEST_F(FatBinaries, MayBeAlignedWithZerosAndHoldOtherKinds) {
  EXPECT_THAT(architectures_of(test::fat_binary({{2, 80}}) + std::string(24, '\0') +
                               test::fat_binary({{2, 80}, {8, 0}}) + std::string(8, '\0')),
              Optional(ElementsAre("sm_80")));
}

TEST_F(FatBinaries, WithoutThemNothingIsKnown) {
  EXPECT_EQ(architectures_of(""), std::nullopt);
  EXPECT_EQ(architectures_of(std::string(1 << 20, '\0')), std::nullopt);
  EXPECT_EQ(architectures_of("no fat binary at all, but long enough for a header"), std::nullopt);
  ElfFile file(folder_.write("library.so", test::elf_file({})));
  EXPECT_EQ(fat_binary_architectures(file), std::nullopt);
}

TEST_F(FatBinaries, DamagedOnesAreNotBelieved) {
  const std::string good = test::fat_binary({{2, 80}, {1, 80}});
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes)
    EXPECT_EQ(architectures_of(good.substr(0, bytes)), std::nullopt) << bytes;

  constexpr std::size_t kEntry = 16;
  const auto damaged = [&](std::size_t offset, auto value) {
    std::string section = good;
    test::replace_at(section, offset, value);
    return architectures_of(section);
  };
  EXPECT_EQ(damaged(0, std::uint32_t{0x466243B1}), std::nullopt);
  EXPECT_EQ(damaged(6, std::uint16_t{0}), std::nullopt);
  EXPECT_EQ(damaged(8, ~std::uint64_t{0}), std::nullopt);
  EXPECT_EQ(damaged(kEntry + 4, std::uint32_t{0}), std::nullopt);  // an entry that leads to itself
  EXPECT_EQ(damaged(kEntry + 4, ~std::uint32_t{0}), std::nullopt);
  EXPECT_EQ(damaged(kEntry + 8, ~std::uint64_t{0} - 63), std::nullopt);  // back to where it began, by overflow
  EXPECT_EQ(damaged(kEntry + 28, std::uint32_t{0x61626364}), std::nullopt);
}

TEST_F(FatBinaries, MoreEntriesThanAnyLibraryHasAreNotWalked) {
  std::vector<test::FatEntry> entries(100'001, {.kind = 2, .architecture = 80, .code_bytes = 0});
  EXPECT_EQ(architectures_of(test::fat_binary(entries)), std::nullopt);
  entries.pop_back();
  EXPECT_THAT(architectures_of(test::fat_binary(entries)), Optional(ElementsAre("sm_80")));
}

TEST_F(FatBinaries, TheFlagsAreAListOfNothingElse) {
  EXPECT_THAT(flags_of("sm_count\0use sm_80 or newer\0sm_75 sm_90a compute_90\0sm_60\0"s),
              ElementsAre("sm_75", "sm_90a", "compute_90"));
  EXPECT_THAT(flags_of("sm_\0sm_8\0sm_8000\0sm_80x\0"s), IsEmpty());
}

// What the format is known from.
TEST_F(FatBinaries, AgreeWithNvcc) {
  const std::string nvcc = find_program("nvcc");
  if (nvcc.empty()) GTEST_SKIP() << "no nvcc";
  const auto source = folder_.write("kernel.cu", "__global__ void kernel(float* p) { *p = 1; }\n");
  const std::string library = (folder_ / "kernel.so").string();
  const ProcessResult result =
      run_process({nvcc, "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-gencode", "arch=compute_75,code=sm_75",
                   "-gencode", "arch=compute_90a,code=sm_90a", "-gencode", "arch=compute_80,code=[sm_80,compute_80]",
                   "-o", library, source.string()},
                  std::chrono::minutes(2));
  if (result.exit_code != 0) GTEST_SKIP() << "nvcc does not work here: " << result.err;
  ElfFile file(library);
  EXPECT_THAT(fat_binary_architectures(file), Optional(ElementsAre("sm_75", "sm_80", "sm_90a", "compute_80")));
}

}  // namespace
}  // namespace reelgrad
