// What the headers of a shared library of Linux say (64-bit, little-endian ELF), without opening it as one. Only they
// are read, some kilobytes of a file of any size. Nothing in them is believed: a damaged file gives less, never an
// exception, and never makes us hold more than 2 MiB.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace reelgrad {

class ElfFile {
 public:
  struct Section {
    std::uint64_t offset = 0, size = 0;  // bytes; within the file
  };

  explicit ElfFile(const std::filesystem::path& path);

  explicit operator bool() const { return valid_; }  // it is such a file
  bool is_of_this_machine() const;                   // built for this kind of processor
  // The end that its headers tell of lies beyond the end of the file: a copy or download that was cut short.
  bool is_cut_short() const;

  std::optional<Section> section(std::string_view name);
  const std::vector<std::string>& needed() const { return needed_; }                // "libc.so.6"
  const std::vector<std::string>& version_needs() const { return version_needs_; }  // "GLIBC_2.28"

  // False when the file does not have these bytes.
  bool read(std::uint64_t offset, std::span<std::byte> into);
  template <class T>
  requires std::is_trivially_copyable_v<T> std::optional<T> read(std::uint64_t offset) {
    T value;
    if (!read(offset, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
    return value;
  }

  // What stands from a `mark` in the section to the next zero, at most 256 bytes: the first such text that is accepted.
  using Accept = std::function<bool(std::string_view text)>;
  std::optional<std::string> text_from(const Section& section, std::string_view mark, const Accept& accept);

 private:
  struct Load {
    std::uint64_t address, offset, size;
  };

  std::string text_at(std::uint64_t offset);
  std::optional<std::uint64_t> offset_of(std::uint64_t address) const;
  void read_program_headers();
  void read_dynamic(std::uint64_t offset, std::uint64_t size);
  void read_version_needs(std::uint64_t offset, std::uint64_t strings);

  std::ifstream stream_;
  std::uint64_t size_ = 0;
  bool valid_ = false;
  std::uint16_t machine_ = 0, program_headers_ = 0, sections_ = 0, names_section_ = 0;
  std::uint64_t program_table_ = 0, section_table_ = 0;
  std::vector<Load> loads_;
  std::vector<std::string> needed_, version_needs_;
};

// The newest of the names that start with `prefix`, without it: ("GLIBC_") -> "2.28". Names without a number after it
// (GLIBC_PRIVATE) do not count; empty: there is none.
std::string newest_version(std::span<const std::string> names, std::string_view prefix);

}  // namespace reelgrad
