#include "reelgrad/doctor/torch/fat_binary.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

namespace reelgrad {
namespace {

constexpr std::uint32_t kMagic = 0xBA55ED50;
constexpr std::uint16_t kPtx = 1, kMachineCode = 2;
constexpr std::uint64_t kArchitectureSpecific = 0x100000, kFamilySpecific = 0x200000;  // the "a" and "f" of sm_100a
constexpr std::size_t kMaxEntries = 100'000;  // libcublasLt, the largest there is, has some thousands
constexpr std::uint64_t kMaxPaddingBytes = 1 << 16;

struct BinaryHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  // of all entries
};
static_assert(sizeof(BinaryHeader) == 16);

struct EntryHeader {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;  // the code follows
  std::uint64_t code_bytes;    // as stored: compressed and padded
  std::uint32_t compressed_bytes, options;
  std::uint16_t minor, major;
  std::uint32_t architecture;  // 80, 120
  std::uint32_t name_offset, name_bytes;
  std::uint64_t flags;
};
static_assert(sizeof(EntryHeader) == 48);

struct Architecture {
  bool ptx = false;
  std::uint32_t number = 0;
  std::string suffix;
  auto operator<=>(const Architecture&) const = default;

  std::string name() const { return fmt::format("{}_{}{}", ptx ? "compute" : "sm", number, suffix); }
};

// Walks the fat binaries of one section.
class Walk {
 public:
  Walk(ElfFile& file, ElfFile::Section section)
      : file_(file), at_(section.offset), end_(section.offset + section.size) {}

  bool to_the_end() {
    while (at_ < end_) {
      if (!(padding() || binary())) return false;
    }
    return binaries_ > 0;
  }

  std::vector<std::string> usual() const {
    std::vector<std::string> names;
    for (const auto& [architecture, count] : counts_) {
      if (2 * count >= binaries_) names.push_back(architecture.name());
    }
    return names;
  }

 private:
  // Zeros between two binaries, where an object file's part was aligned.
  bool padding() {
    const auto word = file_.read<std::uint32_t>(at_);
    if (!word || *word != 0 || padding_bytes_ >= kMaxPaddingBytes) return false;
    at_ += sizeof(*word);
    padding_bytes_ += sizeof(*word);
    return true;
  }

  bool binary() {
    const auto header = file_.read<BinaryHeader>(at_);
    if (!header || header->magic != kMagic || header->header_bytes < sizeof(BinaryHeader)) return false;
    if (header->header_bytes > end_ - at_ || header->bytes > end_ - at_ - header->header_bytes) return false;
    at_ += header->header_bytes;
    std::set<Architecture> found;
    for (const std::uint64_t end = at_ + header->bytes; at_ < end;) {
      if (!entry(end, found)) return false;
    }
    for (const Architecture& architecture : found) ++counts_[architecture];
    ++binaries_;
    return true;
  }

  bool entry(std::uint64_t end, std::set<Architecture>& found) {
    const auto header = file_.read<EntryHeader>(at_);
    if (!header || header->header_bytes < sizeof(EntryHeader) || ++entries_ > kMaxEntries) return false;
    if (header->header_bytes > end - at_ || header->code_bytes > end - at_ - header->header_bytes) return false;
    at_ += header->header_bytes + header->code_bytes;
    // Others are for the linker of device code.
    if (header->kind != kPtx && header->kind != kMachineCode) return true;
    if (header->architecture < 10 || header->architecture > 999) return false;
    const char* suffix = header->flags & kArchitectureSpecific ? "a" : header->flags & kFamilySpecific ? "f" : "";
    found.insert({header->kind == kPtx, header->architecture, suffix});
    return true;
  }

  ElfFile& file_;
  std::uint64_t at_, end_;
  std::uint64_t padding_bytes_ = 0;
  std::size_t binaries_ = 0, entries_ = 0;
  std::map<Architecture, std::size_t> counts_;
};

bool is_architecture(std::string_view word) {
  for (const std::string_view prefix : {"sm_", "compute_"}) {
    if (!word.starts_with(prefix)) continue;
    word.remove_prefix(prefix.size());
    if (word.ends_with('a') || word.ends_with('f')) word.remove_suffix(1);
    return word.size() >= 2 && word.size() <= 3 && word.find_first_not_of("0123456789") == std::string_view::npos;
  }
  return false;
}

// The words of a text that has nothing but architectures, else none.
std::vector<std::string> architecture_words(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) {
    if (!is_architecture(word)) return {};
    words.push_back(word);
  }
  return words;
}

}  // namespace

std::optional<std::vector<std::string>> fat_binary_architectures(ElfFile& library) {
  const auto section = library.section(".nv_fatbin");
  if (!section) return std::nullopt;
  Walk walk(library, *section);
  if (!walk.to_the_end()) return std::nullopt;
  return walk.usual();
}

std::vector<std::string> architecture_flags(ElfFile& library) {
  const auto section = library.section(".rodata");
  if (!section) return {};
  const auto text =
      library.text_from(*section, "sm_", [](std::string_view text) { return !architecture_words(text).empty(); });
  return text ? architecture_words(*text) : std::vector<std::string>{};
}

}  // namespace reelgrad
