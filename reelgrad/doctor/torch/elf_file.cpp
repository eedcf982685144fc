#include "reelgrad/doctor/torch/elf_file.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace reelgrad {
namespace {

// Far more than any library has, and little work.
constexpr std::size_t kMaxHeaders = 4096;
constexpr std::size_t kMaxTextBytes = 256;
constexpr std::size_t kSearchBytes = 1 << 20;

#if defined(__aarch64__)
constexpr std::uint16_t kThisMachine = EM_AARCH64;
#else
constexpr std::uint16_t kThisMachine = EM_X86_64;
#endif

// "2.28" -> {2, 28}; empty when it does not start with a number.
std::vector<int> version_numbers(std::string_view text) {
  std::vector<int> numbers;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    int number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc{}) break;
    numbers.push_back(number);
    at = stop;
    if (at < end && *at != '.') break;
  }
  return numbers;
}

}  // namespace

ElfFile::ElfFile(const std::filesystem::path& path) {
  std::error_code error;
  // Opening a pipe would wait for a writer.
  if (!std::filesystem::is_regular_file(path, error)) return;
  size_ = std::filesystem::file_size(path, error);
  if (error) return;
  stream_.open(path, std::ios::binary);
  const auto header = read<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) return;
  valid_ = true;
  machine_ = header->e_machine;
  program_table_ = header->e_phoff;
  program_headers_ = header->e_phnum;
  section_table_ = header->e_shoff;
  sections_ = header->e_shnum;
  names_section_ = header->e_shstrndx;
  read_program_headers();
}

bool ElfFile::is_of_this_machine() const {
  return machine_ == kThisMachine;
}

bool ElfFile::is_cut_short() const {
  // Linkers put the table of sections last. A file without one (stripped) has offset and count 0.
  return section_table_ > size_ || sections_ * sizeof(Elf64_Shdr) > size_ - section_table_;
}

bool ElfFile::read(std::uint64_t offset, std::span<std::byte> into) {
  if (offset > size_ || into.size() > size_ - offset) return false;
  stream_.clear();
  stream_.seekg(static_cast<std::streamoff>(offset));
  stream_.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size()));
  return static_cast<bool>(stream_);
}

std::string ElfFile::text_at(std::uint64_t offset) {
  if (offset >= size_) return "";
  std::array<char, kMaxTextBytes> text;
  const std::size_t bytes = std::min<std::uint64_t>(text.size(), size_ - offset);
  if (!read(offset, std::as_writable_bytes(std::span(text.data(), bytes)))) return "";
  return {text.data(), static_cast<std::size_t>(std::find(text.data(), text.data() + bytes, '\0') - text.data())};
}

std::optional<std::uint64_t> ElfFile::offset_of(std::uint64_t address) const {
  for (const Load& load : loads_) {
    if (address >= load.address && address - load.address < load.size) return load.offset + (address - load.address);
  }
  return std::nullopt;
}

void ElfFile::read_program_headers() {
  std::optional<Elf64_Phdr> dynamic;
  for (std::size_t i = 0; i < std::min<std::size_t>(program_headers_, kMaxHeaders); ++i) {
    const auto header = read<Elf64_Phdr>(program_table_ + i * sizeof(Elf64_Phdr));
    if (!header) break;
    if (header->p_type == PT_LOAD) loads_.push_back({header->p_vaddr, header->p_offset, header->p_filesz});
    if (header->p_type == PT_DYNAMIC) dynamic = header;
  }
  if (dynamic) read_dynamic(dynamic->p_offset, dynamic->p_filesz);
}

void ElfFile::read_dynamic(std::uint64_t offset, std::uint64_t size) {
  std::vector<std::uint64_t> names;
  std::optional<std::uint64_t> strings, versions;
  for (std::size_t i = 0; i < std::min<std::uint64_t>(size / sizeof(Elf64_Dyn), kMaxHeaders); ++i) {
    const auto entry = read<Elf64_Dyn>(offset + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_STRTAB) strings = offset_of(entry->d_un.d_ptr);
    if (entry->d_tag == DT_VERNEED) versions = offset_of(entry->d_un.d_ptr);
  }
  if (!strings) return;
  for (const std::uint64_t name : names) needed_.push_back(text_at(*strings + name));
  if (versions) read_version_needs(*versions, *strings);
}

// Two levels of linked lists, libraries and their versions. Their links only lead forward, and the entries are counted:
// no damage makes this run for ever.
void ElfFile::read_version_needs(std::uint64_t offset, std::uint64_t strings) {
  std::size_t left = kMaxHeaders;
  while (left > 0) {
    const auto library = read<Elf64_Verneed>(offset);
    if (!library) return;
    std::uint64_t entry_offset = offset + library->vn_aux;
    for (std::size_t i = 0; i < library->vn_cnt && left > 0; ++i, --left) {
      const auto entry = read<Elf64_Vernaux>(entry_offset);
      if (!entry) return;
      version_needs_.push_back(text_at(strings + entry->vna_name));
      if (entry->vna_next == 0) break;
      entry_offset += entry->vna_next;
    }
    if (library->vn_next == 0 || left == 0) return;
    offset += library->vn_next;
    --left;
  }
}

std::optional<ElfFile::Section> ElfFile::section(std::string_view name) {
  const auto names = read<Elf64_Shdr>(section_table_ + names_section_ * sizeof(Elf64_Shdr));
  if (!names) return std::nullopt;
  for (std::size_t i = 0; i < std::min<std::size_t>(sections_, kMaxHeaders); ++i) {
    const auto header = read<Elf64_Shdr>(section_table_ + i * sizeof(Elf64_Shdr));
    if (!header) return std::nullopt;
    if (text_at(names->sh_offset + header->sh_name) != name) continue;
    if (header->sh_offset > size_ || header->sh_size > size_ - header->sh_offset) return std::nullopt;
    return Section{header->sh_offset, header->sh_size};
  }
  return std::nullopt;
}

std::optional<std::string> ElfFile::text_from(const Section& section, std::string_view mark, const Accept& accept) {
  std::string block;
  const std::boyer_moore_horspool_searcher searcher(mark.begin(), mark.end());
  // Blocks overlap, so that a mark across their border is seen.
  for (std::uint64_t done = 0; done + mark.size() <= section.size; done += kSearchBytes) {
    block.resize(std::min<std::uint64_t>(section.size - done, kSearchBytes + mark.size() - 1));
    if (!read(section.offset + done, std::as_writable_bytes(std::span(block)))) return std::nullopt;
    auto found = std::search(block.begin(), block.end(), searcher);
    for (; found != block.end(); found = std::search(found + 1, block.end(), searcher)) {
      std::string text = text_at(section.offset + done + static_cast<std::uint64_t>(found - block.begin()));
      if (accept(text)) return text;
    }
  }
  return std::nullopt;
}

std::string newest_version(std::span<const std::string> names, std::string_view prefix) {
  std::string newest;
  std::vector<int> newest_numbers;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    std::vector<int> numbers = version_numbers(std::string_view(name).substr(prefix.size()));
    if (numbers <= newest_numbers) continue;
    newest = name.substr(prefix.size());
    newest_numbers = std::move(numbers);
  }
  return newest;
}

}  // namespace reelgrad
