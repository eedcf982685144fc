#include "reelgrad/doctor/torch/elf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/doctor/testing/elf_builder.h"
#include "reelgrad/doctor/torch/fat_binary.h"

namespace reelgrad {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

test::ElfPlan small_library() {
  return {.needed = {"libc.so.6", "libstdc++.so.6"},
          .version_needs = {{"libc.so.6", {"GLIBC_2.9", "GLIBC_2.28", "GLIBC_PRIVATE"}},
                            {"libstdc++.so.6", {"GLIBCXX_3.4.19", "CXXABI_1.3"}}},
          .sections = {{".rodata", "first\0sm_count\0sm_75 sm_80\0rest"s},
                       {".nv_fatbin", test::fat_binary({{2, 80}, {1, 80}}) + test::fat_binary({{2, 80}})}}};
}

class ElfFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& bytes) const { return folder_.write("library.so", bytes); }

  test::TemporaryFolder folder_;
};

// All that can be asked of a file, whatever state it is in: the answers of a damaged one are worth nothing, but each
// name is short.
void ask_everything(const std::filesystem::path& path) {
  ElfFile file(path);
  if (!file) return;
  EXPECT_LE(file.needed().size(), 4096u);
  EXPECT_LE(file.version_needs().size(), 4096u);
  for (const std::string& name : file.version_needs()) EXPECT_LE(name.size(), 256u);
  fat_binary_architectures(file);
  architecture_flags(file);
}

TEST_F(ElfFiles, SaysWhatALibraryNeeds) {
  ElfFile file(write(test::elf_file(small_library())));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file.is_of_this_machine());
  EXPECT_FALSE(file.is_cut_short());
  EXPECT_THAT(file.needed(), ElementsAre("libc.so.6", "libstdc++.so.6"));
  EXPECT_THAT(file.version_needs(),
              ElementsAre("GLIBC_2.9", "GLIBC_2.28", "GLIBC_PRIVATE", "GLIBCXX_3.4.19", "CXXABI_1.3"));
  EXPECT_EQ(newest_version(file.version_needs(), "GLIBC_"), "2.28");
  EXPECT_EQ(newest_version(file.version_needs(), "GLIBCXX_"), "3.4.19");
  EXPECT_EQ(newest_version(file.version_needs(), "NONE_"), "");
}

TEST_F(ElfFiles, FindsSectionsAndTextsInThem) {
  ElfFile file(write(test::elf_file(small_library())));
  const auto section = file.section(".rodata");
  ASSERT_TRUE(section);
  EXPECT_EQ(section->size, small_library().sections[0].second.size());
  const auto any = [](std::string_view) { return true; };
  EXPECT_EQ(file.text_from(*section, "rs", any), "rst");
  EXPECT_EQ(file.text_from(*section, "sm_", any), "sm_count");
  EXPECT_EQ(file.text_from(*section, "sm_", [](std::string_view text) { return text.ends_with("80"); }), "sm_75 sm_80");
  EXPECT_EQ(file.text_from(*section, "none", any), std::nullopt);
  EXPECT_FALSE(file.section(".text"));
}

TEST_F(ElfFiles, ATextAcrossTheBorderOfTwoBlocksIsFound) {
  std::string contents((1 << 20) - 3, 'x');
  contents += "needle 1\0and more"s;
  ElfFile file(write(test::elf_file({.sections = {{".rodata", contents}}})));
  EXPECT_EQ(file.text_from(*file.section(".rodata"), "needle", [](std::string_view) { return true; }), "needle 1");
}

TEST_F(ElfFiles, OtherFilesAreNone) {
  EXPECT_FALSE(ElfFile(folder_ / "none"));
  EXPECT_FALSE(ElfFile(folder_.path()));
  EXPECT_FALSE(ElfFile("/dev/zero"));
  EXPECT_FALSE(ElfFile(write("")));
  EXPECT_FALSE(ElfFile(write("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 456142457\n")));
  std::string bytes = test::elf_file({});
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_FALSE(ElfFile(write(bytes)));
}

TEST_F(ElfFiles, AnotherMachinesAreTold) {
  EXPECT_FALSE(ElfFile(write(test::elf_file({.machine = EM_RISCV}))).is_of_this_machine());
}

TEST_F(ElfFiles, CutAnywhereTheyGiveLessAndNothingElse) {
  const std::string whole = test::elf_file(small_library());
  const auto path = write(whole);
  for (std::size_t bytes = whole.size(); bytes-- > 0;) {
    std::filesystem::resize_file(path, bytes);
    const ElfFile file(path);
    EXPECT_EQ(static_cast<bool>(file), bytes >= sizeof(Elf64_Ehdr)) << bytes;
    EXPECT_TRUE(!file || file.is_cut_short()) << bytes;
    ask_everything(path);
  }
}

TEST_F(ElfFiles, DamagedAnywhereTheyDoNoHarm) {
  const std::string whole = test::elf_file(small_library());
  const auto path = write(whole);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto write_at = [&](std::size_t at, char value) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(value).flush();
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '\1', '\xff'}) {
      write_at(at, value);
      ask_everything(path);
    }
    write_at(at, whole[at]);
  }
  EXPECT_TRUE(file);
}

TEST_F(ElfFiles, ListsWithoutEndStop) {
  test::ElfPlan plan{.version_needs = {{"libc.so.6", {"GLIBC_2.28"}}}};
  std::string bytes = test::elf_file(plan);
  // One entry that says 65535 follow, each one byte on: overlapping nonsense.
  const auto need = bytes.find(std::string("\1\0\1\0"s), sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr));
  ASSERT_NE(need, std::string::npos);
  test::replace_at(bytes, need + offsetof(Elf64_Verneed, vn_cnt), std::uint16_t{0xFFFF});
  test::replace_at(bytes, need + sizeof(Elf64_Verneed) + offsetof(Elf64_Vernaux, vna_next), std::uint32_t{1});
  bytes.insert(bytes.size(), 1 << 20, '\1');
  ask_everything(write(bytes));
}

// binutils reads the same of this very program.
TEST_F(ElfFiles, AgreeWithReadelf) {
  if (find_program("readelf").empty()) GTEST_SKIP() << "no readelf";
  ElfFile file(executable_path());
  ASSERT_TRUE(file);
  std::vector<std::string> needed, versions;
  for (const std::string& line : test::lines_of(test::output_of({"readelf", "-dVW", executable_path().string()}))) {
    const std::size_t open = line.find('[');
    if (line.find("(NEEDED)") != std::string::npos) needed.push_back(line.substr(open + 1, line.find(']') - open - 1));
    const std::size_t name = line.find("Name: ");
    if (name != std::string::npos && line.find("Flags: ") != std::string::npos &&
        line.find("Version: ") != std::string::npos) {
      std::istringstream words(line.substr(name + 6));
      versions.emplace_back();
      words >> versions.back();
    }
  }
  EXPECT_EQ(file.needed(), needed);
  EXPECT_FALSE(versions.empty());
  EXPECT_THAT(file.version_needs(), UnorderedElementsAreArray(versions));
}

}  // namespace
}  // namespace reelgrad
