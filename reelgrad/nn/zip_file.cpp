#include "reelgrad/nn/zip_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

static_assert(std::endian::native == std::endian::little, "a zip's numbers are read as they lie in memory");

constexpr std::string_view kLocalHeader = "PK\x03\x04", kDirectoryEntry = "PK\x01\x02", kDirectoryEnd = "PK\x05\x06",
                           kDirectoryEnd64 = "PK\x06\x06", kLocator64 = "PK\x06\x07";
constexpr std::uint64_t kLocalHeaderBytes = 30, kDirectoryEntryBytes = 46, kDirectoryEndBytes = 22,
                        kDirectoryEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr std::uint64_t kLongestComment = 0xffff;
constexpr std::uint64_t kMaxRecords = 200'000;
constexpr std::uint32_t kElsewhere32 = 0xffffffff;  // the number is in the zip64 part
constexpr std::uint16_t kElsewhere16 = 0xffff;
constexpr std::uint16_t kZip64Tag = 1, kPaddingTag = 0x4246;  // "FB", torch's own
constexpr std::uint16_t kEncrypted = 1, kUtf8 = 1 << 11;
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint16_t kZip64Version = 45, kPlainVersion = 20;

// Eight bytes at a time ("slicing by eight"): table [k] is a byte's effect after k more bytes.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr CrcTables kCrcTables = make_crc_tables();

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::uint64_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool lies_within(std::uint64_t at, std::uint64_t bytes, std::uint64_t whole) {
  return at <= whole && bytes <= whole - at;
}

bool has_mark(std::span<const std::byte> bytes, std::uint64_t at, std::string_view mark) {
  return lies_within(at, mark.size(), bytes.size()) && text_of(bytes.subspan(at, mark.size())) == mark;
}

// The last record of the archive, after which only a comment comes.
std::optional<std::uint64_t> find_directory_end(std::span<const std::byte> archive) {
  if (archive.size() < kDirectoryEndBytes) return std::nullopt;
  const std::uint64_t last = archive.size() - kDirectoryEndBytes;
  const std::uint64_t first = last - std::min(last, kLongestComment);
  for (std::uint64_t at = last + 1; at-- > first;) {
    if (!has_mark(archive, at, kDirectoryEnd)) continue;
    if (at + kDirectoryEndBytes + number_at<std::uint16_t>(archive, at + 20) == archive.size()) return at;
  }
  return std::nullopt;
}

// The part of that tag among a record's extra fields, as far as they are whole.
std::span<const std::byte> find_extra(std::span<const std::byte> extras, std::uint16_t tag) {
  while (extras.size() >= 4) {
    const std::uint16_t bytes = number_at<std::uint16_t>(extras, 2);
    if (bytes > extras.size() - 4) break;
    if (number_at<std::uint16_t>(extras, 0) == tag) return extras.subspan(4, bytes);
    extras = extras.subspan(4 + bytes);
  }
  return {};
}

template <class... Numbers>
std::string packed(Numbers... numbers) {
  std::string bytes;
  const auto add = [&](auto number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof number); };
  (add(numbers), ...);
  return bytes;
}

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

U32 or_elsewhere(U64 number) {
  return number >= kElsewhere32 ? kElsewhere32 : static_cast<U32>(number);
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const std::uint64_t block = number_at<std::uint64_t>(bytes, 0) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kCrcTables[7 - k][(block >> (8 * k)) & 0xff];
  }
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return ~crc;
}

ZipReader::ZipReader(std::span<std::byte> archive, std::string what) : archive_(archive), what_(std::move(what)) {
  const std::optional<std::uint64_t> end = find_directory_end(archive_);
  if (!end) fail(fmt::format("{}: a zip archive without its end: cut off", what_));
  std::uint64_t count = number_at<U16>(archive_, *end + 10), bytes = number_at<U32>(archive_, *end + 12),
                at = number_at<U32>(archive_, *end + 16);
  if (*end >= kLocator64Bytes && has_mark(archive_, *end - kLocator64Bytes, kLocator64)) {
    const std::uint64_t end64 = number_at<U64>(archive_, *end - kLocator64Bytes + 8);
    if (!lies_within(end64, kDirectoryEnd64Bytes, archive_.size()) || !has_mark(archive_, end64, kDirectoryEnd64)) {
      fail(fmt::format("{}: damaged zip archive: its zip64 directory is not where it should be", what_));
    }
    count = number_at<U64>(archive_, end64 + 32);
    bytes = number_at<U64>(archive_, end64 + 40);
    at = number_at<U64>(archive_, end64 + 48);
  }
  if (!lies_within(at, bytes, *end)) {
    fail(fmt::format("{}: damaged zip archive: its directory of {} bytes at {} is not within the file's {}", what_,
                     bytes, at, archive_.size()));
  }
  read_directory(at, bytes, count);
}

void ZipReader::read_directory(std::uint64_t at, std::uint64_t bytes, std::uint64_t count) {
  if (count > kMaxRecords) fail(fmt::format("{}: a zip archive of {} records, allowed: {}", what_, count, kMaxRecords));
  std::span<const std::byte> rest = archive_.subspan(at, bytes);
  std::uint64_t bytes_left = archive_.size();
  const auto damaged = [&] {
    fail(fmt::format("{}: damaged zip archive: record {} of its directory", what_, records_.size() + 1));
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    if (rest.size() < kDirectoryEntryBytes || !has_mark(rest, 0, kDirectoryEntry)) damaged();
    const std::uint64_t name_bytes = number_at<U16>(rest, 28), extra_bytes = number_at<U16>(rest, 30),
                        comment_bytes = number_at<U16>(rest, 32);
    const std::uint64_t entry_bytes = kDirectoryEntryBytes + name_bytes + extra_bytes + comment_bytes;
    if (entry_bytes > rest.size()) damaged();

    ZipRecord record{.header_at = number_at<U32>(rest, 42),
                     .stored_bytes = number_at<U32>(rest, 20),
                     .bytes = number_at<U32>(rest, 24),
                     .crc = number_at<U32>(rest, 16),
                     .method = number_at<U16>(rest, 10),
                     .flags = number_at<U16>(rest, 8)};
    // Those of the three that do not fit into 32 bits, in this order.
    std::span<const std::byte> large =
        find_extra(rest.subspan(kDirectoryEntryBytes + name_bytes, extra_bytes), kZip64Tag);
    for (std::uint64_t* number : {&record.bytes, &record.stored_bytes, &record.header_at}) {
      if (*number != kElsewhere32) continue;
      if (large.size() < sizeof *number) damaged();
      *number = number_at<U64>(large, 0);
      large = large.subspan(sizeof *number);
    }
    const std::string_view name = text_of(rest.subspan(kDirectoryEntryBytes, name_bytes));
    if (record.stored_bytes > bytes_left) {
      fail(fmt::format("{}: damaged zip archive: its records, up to \"{}\", are longer than the file", what_, name));
    }
    bytes_left -= record.stored_bytes;
    if (!records_.emplace(name, record).second) {
      fail(fmt::format("{}: damaged zip archive: it has two records \"{}\"", what_, name));
    }
    rest = rest.subspan(entry_bytes);
  }
}

const ZipRecord& ZipReader::find(std::string_view name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) fail(fmt::format("{}: the archive has no record \"{}\"", what_, name));
  return found->second;
}

std::span<std::byte> ZipReader::content(std::string_view name) const {
  const ZipRecord& record = find(name);
  if (record.flags & kEncrypted) fail(fmt::format("{}: the record \"{}\" is encrypted", what_, name));
  if (record.method != 0 || record.stored_bytes != record.bytes) {
    fail(
        fmt::format("{}: the record \"{}\" is compressed, which torch.save does not do: unpack the archive and pack it "
                    "again without compression (zip -0)",
                    what_, name));
  }
  if (!lies_within(record.header_at, kLocalHeaderBytes, archive_.size()) ||
      !has_mark(archive_, record.header_at, kLocalHeader)) {
    fail(fmt::format("{}: damaged zip archive: \"{}\" is not where the directory says", what_, name));
  }
  const std::uint64_t start = record.header_at + kLocalHeaderBytes + number_at<U16>(archive_, record.header_at + 26) +
                              number_at<U16>(archive_, record.header_at + 28);
  if (!lies_within(start, record.bytes, archive_.size())) {
    fail(fmt::format("{}: damaged zip archive: \"{}\" of {} bytes goes beyond its end", what_, name, record.bytes));
  }
  return archive_.subspan(start, record.bytes);
}

bool ZipReader::is_intact(std::string_view name) const {
  return crc32(content(name)) == find(name).crc;
}

void ZipWriter::put(std::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  position_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> content) {
  const U64 header_at = position_, bytes = content.size();
  const U32 crc = crc32(content);
  const bool large = bytes >= kElsewhere32;
  const U16 version = large || header_at >= kElsewhere32 ? kZip64Version : kPlainVersion;
  std::string extra = large ? packed(kZip64Tag, U16{16}, bytes, bytes) : std::string();
  const U64 unpadded = header_at + kLocalHeaderBytes + name.size() + extra.size() + 4;
  const U64 padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  extra += packed(kPaddingTag, static_cast<U16>(padding)) + std::string(padding, 'Z');

  // The date is the first that zip has: the same weights give the same file.
  constexpr U16 kTime = 0, kDate = (1 << 5) | 1;
  const std::string common =
      packed(kUtf8, U16{0}, kTime, kDate, crc, or_elsewhere(bytes), or_elsewhere(bytes), static_cast<U16>(name.size()));
  put(std::string(kLocalHeader) + packed(version) + common + packed(static_cast<U16>(extra.size())) + name + extra);
  put(text_of(content));

  std::string numbers;
  if (large) numbers += packed(bytes, bytes);
  if (header_at >= kElsewhere32) numbers += packed(header_at);
  if (!numbers.empty()) numbers = packed(kZip64Tag, static_cast<U16>(numbers.size())) + numbers;
  directory_ += std::string(kDirectoryEntry) + packed(version, version) + common +
                packed(static_cast<U16>(numbers.size()), U16{0}, U16{0}, U16{0}, U32{0}, or_elsewhere(header_at)) +
                name + numbers;
  ++count_;
}

void ZipWriter::finish() {
  const U64 at = position_, bytes = directory_.size();
  put(directory_);
  if (at >= kElsewhere32 || bytes >= kElsewhere32 || count_ >= kElsewhere16) {
    const U64 end64 = position_;
    put(std::string(kDirectoryEnd64) + packed(U64{kDirectoryEnd64Bytes - 12}, kZip64Version, kZip64Version, U32{0},
                                              U32{0}, count_, count_, bytes, at));
    put(std::string(kLocator64) + packed(U32{0}, end64, U32{1}));
  }
  const auto count = static_cast<U16>(std::min<U64>(count_, kElsewhere16));
  put(std::string(kDirectoryEnd) + packed(U16{0}, U16{0}, count, count, or_elsewhere(bytes), or_elsewhere(at), U16{0}));
}

}  // namespace reelgrad
