// The zip archives that torch.save makes: records that are stored, not compressed, each at a multiple of 64 bytes, so
// that they can be used where they lie. Knows no torch.
// Source of the layout: the published ZIP specification, PKWARE's APPNOTE 6.3.10.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reelgrad {

std::uint32_t crc32(std::span<const std::byte> bytes);  // of zip and gzip

struct ZipRecord {
  std::uint64_t header_at = 0;  // of its local header
  std::uint64_t stored_bytes = 0, bytes = 0;
  std::uint32_t crc = 0;
  std::uint16_t method = 0, flags = 0;
};

// The records of an archive in memory, as its central directory lists them. Allocates by the length of that list alone,
// and trusts no number in it. Throws failed, naming `what` and what is wrong.
class ZipReader {
 public:
  // The bytes and all that is handed out are the caller's to keep alive.
  ZipReader(std::span<std::byte> archive, std::string what);

  const std::map<std::string_view, ZipRecord>& records() const { return records_; }
  bool contains(std::string_view name) const { return records_.contains(name); }

  // Where the record lies in the archive. Throws also when there is none of that name, or it is compressed.
  std::span<std::byte> content(std::string_view name) const;

  // False: not the bytes that were written.
  bool is_intact(std::string_view name) const;

 private:
  void read_directory(std::uint64_t at, std::uint64_t bytes, std::uint64_t count);
  const ZipRecord& find(std::string_view name) const;

  std::span<std::byte> archive_;
  std::string what_;
  std::map<std::string_view, ZipRecord> records_;
};

// Writes such an archive. The stream's state is the caller's to check.
class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& out) : out_(out) {}
  void add(const std::string& name, std::span<const std::byte> content);
  void finish();

 private:
  void put(std::string_view bytes);

  std::ostream& out_;
  std::uint64_t position_ = 0;
  std::string directory_;
  std::uint64_t count_ = 0;
};

}  // namespace reelgrad
