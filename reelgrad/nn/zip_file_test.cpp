#include "reelgrad/nn/zip_file.h"

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/memory_limit.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> view_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::span<std::byte> writable(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

std::string archive_of(const std::vector<std::pair<std::string, std::string>>& records) {
  std::ostringstream out;
  ZipWriter writer(out);
  for (const auto& [name, content] : records) writer.add(name, view_of(content));
  writer.finish();
  return std::move(out).str();
}

std::string content_of(const ZipReader& archive, std::string_view name) {
  const std::span<std::byte> content = archive.content(name);
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

std::string zip_error(std::string archive, const std::string& name = "a") {
  try {
    ZipReader(writable(archive), "x.pth").content(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_THAT(error.what(), HasSubstr("x.pth"));
    return error.what();
  }
  return {};
}

template <class Number>
void patch(std::string& bytes, std::size_t at, Number number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

template <class Number>
std::string little(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

TEST(Crc32, IsTheOneOfZip) {
  EXPECT_EQ(crc32(view_of("123456789")), 0xcbf43926U);  // the check value of its definition
  EXPECT_EQ(crc32({}), 0U);
  EXPECT_EQ(crc32(view_of("The quick brown fox jumps over the lazy dog")), 0x414fa339U);
}

TEST(Zip, WhatIsWrittenIsReadWhereItLies) {
  const std::string large(100'000, 'l');
  std::string bytes = archive_of({{"a/data.pkl", "pickle"}, {"a/data/0", large}, {"é", ""}});
  const ZipReader archive(writable(bytes), "x.pth");
  EXPECT_EQ(archive.records().size(), 3U);
  EXPECT_EQ(content_of(archive, "a/data.pkl"), "pickle");
  EXPECT_EQ(content_of(archive, "a/data/0"), large);
  EXPECT_EQ(content_of(archive, "é"), "");
  for (const auto& [name, record] : archive.records()) {
    EXPECT_EQ((archive.content(name).data() - writable(bytes).data()) % 64, 0) << name;
    EXPECT_TRUE(archive.is_intact(name));
  }
  archive.content("a/data/0")[7] = std::byte{0};
  EXPECT_EQ(bytes[bytes.find(large.substr(0, 7)) + 7], '\0');
  EXPECT_FALSE(archive.is_intact("a/data/0"));
  EXPECT_TRUE(archive.is_intact("a/data.pkl"));
}

TEST(Zip, PythonReadsItAndFindsTheChecksumsRight) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.zip", archive_of({{"a/é", "content"}, {"b", std::string(1000, 'b')}}));
  const ProcessResult result = run_process(
      {REELGRAD_TEST_PYTHON, "-c",
       "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); "
       "print(z.testzip(), z.namelist() == ['a/é', 'b'], z.read('a/é') == b'content', z.read('b') == b'b' * 1000)",
       file.string()},
      std::chrono::minutes(1));
  EXPECT_EQ(result.out, "None True True True\n") << result.err;
}

TEST(Zip, TakesACommentAndZip64Numbers) {
  std::string bytes = archive_of({{"a", "content"}});
  std::string with_comment = bytes + "comment";
  patch<std::uint16_t>(with_comment, bytes.size() - 2, 7);
  EXPECT_EQ(content_of(ZipReader(writable(with_comment), "x"), "a"), "content");

  // The same with every number in the zip64 parts, as for more than 4 GiB.
  const std::size_t entry = bytes.find("PK\x01\x02"), end = bytes.find("PK\x05\x06");
  std::string directory = bytes.substr(entry, end - entry);
  patch<std::uint32_t>(directory, 20, 0xffffffff);
  patch<std::uint32_t>(directory, 24, 0xffffffff);
  patch<std::uint16_t>(directory, 30, 20);
  directory +=
      little<std::uint16_t>(1) + little<std::uint16_t>(16) + little<std::uint64_t>(7) + little<std::uint64_t>(7);
  std::string large = bytes.substr(0, entry) + directory;
  const std::uint64_t end64 = large.size();
  large += "PK\x06\x06" + little<std::uint64_t>(44) + std::string(12, '\0') + little<std::uint64_t>(1) +
           little<std::uint64_t>(1) + little<std::uint64_t>(directory.size()) + little<std::uint64_t>(entry);
  large += "PK\x06\x07" + little<std::uint32_t>(0) + little(end64) + little<std::uint32_t>(1);
  large += std::string("PK\x05\x06") + std::string(4, '\0') + std::string(12, '\xff') + std::string(2, '\0');
  EXPECT_EQ(content_of(ZipReader(writable(large), "x"), "a"), "content");
  patch<std::uint64_t>(large, end64 + 48, ~std::uint64_t{0});
  EXPECT_THAT(zip_error(large), HasSubstr("directory"));
}

TEST(Zip, SaysWhatIsWrong) {
  const std::string good = archive_of({{"a", "content"}});
  const std::size_t entry = good.find("PK\x01\x02"), end = good.find("PK\x05\x06");
  const auto patched = [&](std::size_t at, auto number) {
    std::string bytes = good;
    patch(bytes, at, number);
    return bytes;
  };
  EXPECT_THAT(zip_error(""), HasSubstr("cut off"));
  EXPECT_THAT(zip_error(good.substr(0, good.size() - 1)), HasSubstr("cut off"));
  EXPECT_THAT(zip_error(good, "b"), HasSubstr("no record \"b\""));
  EXPECT_THAT(zip_error(patched(entry + 10, std::uint16_t{8})), HasSubstr("compressed"));
  EXPECT_THAT(zip_error(patched(entry + 8, std::uint16_t{1})), HasSubstr("encrypted"));
  EXPECT_THAT(zip_error(patched(entry + 42, std::uint32_t{5})), HasSubstr("not where"));
  EXPECT_THAT(zip_error(patched(entry + 42, std::uint32_t{0xfffffff0})), HasSubstr("not where"));
  EXPECT_THAT(zip_error(patched(26, std::uint16_t{0xffff})), HasSubstr("beyond its end"));
  EXPECT_THAT(zip_error(patched(entry + 28, std::uint16_t{0xffff})), HasSubstr("record 1"));
  EXPECT_THAT(zip_error(patched(end + 16, std::uint32_t{0xfffffff0})), HasSubstr("directory"));
  EXPECT_THAT(zip_error(patched(end + 10, std::uint16_t{2})), HasSubstr("record 2"));
  EXPECT_THAT(zip_error(archive_of({{"a", "1"}, {"a", "2"}})), HasSubstr("two records \"a\""));
}

TEST(Zip, ABombIsRefused) {
  // A terabyte, zipped: its length is in the directory only.
  std::string bytes = archive_of({{"a", "content"}});
  const std::size_t entry = bytes.find("PK\x01\x02"), end = bytes.find("PK\x05\x06");
  std::string bomb = bytes;
  patch<std::uint32_t>(bomb, entry + 20, 0xfffffff0);
  patch<std::uint32_t>(bomb, entry + 24, 0xfffffff0);
  test::expect_cheap([&] { EXPECT_THAT(zip_error(bomb), HasSubstr("longer than the file")); });
  // 65535 records that are all the same bytes.
  const std::string directory = bytes.substr(entry, end - entry);
  std::string many = bytes.substr(0, entry);
  for (int i = 0; i < 65'534; ++i) many += directory;
  std::string tail = bytes.substr(end);
  patch<std::uint16_t>(tail, 10, 65'534);
  patch<std::uint32_t>(tail, 12, static_cast<std::uint32_t>(many.size() - entry));
  test::expect_cheap([&] { EXPECT_THAT(zip_error(many + tail), HasSubstr("two records")); });
}

}  // namespace
}  // namespace reelgrad
