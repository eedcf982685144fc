// For tests: shared libraries made by hand. They hold no code, but the dynamic linker opens them.
#pragma once
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace reelgrad::test {

template <class T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
void replace_at(std::string& bytes, std::size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

struct ElfPlan {
  std::vector<std::string> needed;                                              // "libc.so.6"
  std::vector<std::pair<std::string, std::vector<std::string>>> version_needs;  // library, "GLIBC_2.28"…
  std::vector<std::pair<std::string, std::string>> sections;                    // name, contents
#if defined(__aarch64__)
  std::uint16_t machine = EM_AARCH64;
#else
  std::uint16_t machine = EM_X86_64;
#endif
};

// The file's parts and the tables of strings while it grows.
class ElfBuilder {
 public:
  explicit ElfBuilder(const ElfPlan& plan) : plan_(plan), bytes_(sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr), '\0') {}

  std::string build() {
    collect_strings();
    const std::size_t symbols = aligned();
    put(bytes_, Elf64_Sym{});
    const std::size_t strings = aligned();
    bytes_ += strings_;
    const std::size_t versions = aligned();
    for (std::size_t i = 0; i < plan_.version_needs.size(); ++i) put_version_needs(i);
    const std::size_t dynamic = aligned();
    put_dynamic(symbols, strings, versions);
    const std::size_t dynamic_bytes = bytes_.size() - dynamic;
    put_headers(dynamic, dynamic_bytes, put_sections());
    return bytes_;
  }

 private:
  std::size_t aligned() {
    bytes_.resize((bytes_.size() + 15) / 16 * 16);
    return bytes_.size();
  }

  std::uint32_t string(const std::string& text) {
    const std::string whole = text + '\0';
    std::size_t found = strings_.find('\0' + whole);
    if (found != std::string::npos) return static_cast<std::uint32_t>(found + 1);
    found = strings_.size();
    strings_ += whole;
    return static_cast<std::uint32_t>(found);
  }

  void collect_strings() {
    string("$ORIGIN");
    for (const std::string& name : plan_.needed) string(name);
    for (const auto& [library, versions] : plan_.version_needs) {
      string(library);
      for (const std::string& version : versions) string(version);
    }
  }

  void put_version_needs(std::size_t index) {
    const auto& [library, versions] = plan_.version_needs[index];
    const auto count = static_cast<std::uint32_t>(versions.size());
    const auto bytes = static_cast<std::uint32_t>(sizeof(Elf64_Verneed) + count * sizeof(Elf64_Vernaux));
    put(bytes_, Elf64_Verneed{.vn_version = VER_NEED_CURRENT,
                              .vn_cnt = static_cast<Elf64_Half>(count),
                              .vn_file = string(library),
                              .vn_aux = sizeof(Elf64_Verneed),
                              .vn_next = index + 1 < plan_.version_needs.size() ? bytes : 0});
    for (std::uint32_t i = 0; i < count; ++i) {
      put(bytes_, Elf64_Vernaux{.vna_name = string(versions[i]),
                                .vna_next = i + 1 < count ? static_cast<Elf64_Word>(sizeof(Elf64_Vernaux)) : 0});
    }
  }

  void put_entry(Elf64_Sxword tag, std::uint64_t value) {
    Elf64_Dyn entry{};
    entry.d_tag = tag;
    entry.d_un.d_val = value;
    put(bytes_, entry);
  }

  void put_dynamic(std::size_t symbols, std::size_t strings, std::size_t versions) {
    for (const std::string& name : plan_.needed) put_entry(DT_NEEDED, string(name));
    put_entry(DT_RUNPATH, string("$ORIGIN"));
    put_entry(DT_STRTAB, strings);
    put_entry(DT_STRSZ, strings_.size());
    put_entry(DT_SYMTAB, symbols);
    put_entry(DT_SYMENT, sizeof(Elf64_Sym));
    if (!plan_.version_needs.empty()) {
      put_entry(DT_VERNEED, versions);
      put_entry(DT_VERNEEDNUM, plan_.version_needs.size());
    }
    put_entry(DT_NULL, 0);
  }

  // The contents, the names, and the table of sections, whose offset is returned.
  std::size_t put_sections() {
    std::vector<Elf64_Shdr> headers(1);
    std::string names(1, '\0');
    const auto add = [&](const std::string& name, std::uint32_t type) {
      headers.push_back({.sh_name = static_cast<Elf64_Word>(names.size()), .sh_type = type, .sh_offset = aligned()});
      names += name + '\0';
    };
    for (const auto& [name, contents] : plan_.sections) {
      add(name, SHT_PROGBITS);
      headers.back().sh_size = contents.size();
      bytes_ += contents;
    }
    add(".shstrtab", SHT_STRTAB);
    headers.back().sh_size = names.size();
    bytes_ += names;
    const std::size_t table = aligned();
    for (const Elf64_Shdr& header : headers) put(bytes_, header);
    section_count_ = static_cast<std::uint16_t>(headers.size());
    return table;
  }

  void put_headers(std::size_t dynamic, std::size_t dynamic_bytes, std::size_t section_table) {
    Elf64_Ehdr header{.e_type = ET_DYN,
                      .e_machine = plan_.machine,
                      .e_version = EV_CURRENT,
                      .e_phoff = sizeof(Elf64_Ehdr),
                      .e_shoff = section_table,
                      .e_ehsize = sizeof(Elf64_Ehdr),
                      .e_phentsize = sizeof(Elf64_Phdr),
                      .e_phnum = 3,
                      .e_shentsize = sizeof(Elf64_Shdr),
                      .e_shnum = section_count_,
                      .e_shstrndx = static_cast<Elf64_Half>(section_count_ - 1)};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    replace_at(bytes_, 0, header);
    const auto segment = [](std::uint32_t type, std::size_t offset, std::size_t bytes, std::size_t alignment) {
      return Elf64_Phdr{.p_type = type,
                        .p_flags = PF_R | PF_W,
                        .p_offset = offset,
                        .p_vaddr = offset,
                        .p_paddr = offset,
                        .p_filesz = bytes,
                        .p_memsz = bytes,
                        .p_align = alignment};
    };
    replace_at(bytes_, sizeof(Elf64_Ehdr), segment(PT_LOAD, 0, bytes_.size(), 0x10000));
    replace_at(bytes_, sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), segment(PT_DYNAMIC, dynamic, dynamic_bytes, 8));
    replace_at(bytes_, sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr), segment(PT_GNU_STACK, 0, 0, 16));
  }

  const ElfPlan& plan_;
  std::string bytes_;
  std::string strings_ = std::string(1, '\0');
  std::uint16_t section_count_ = 0;
};

inline std::string elf_file(const ElfPlan& plan) {
  return ElfBuilder(plan).build();
}

struct FatEntry {
  std::uint16_t kind;  // 1: PTX, 2: machine code
  std::uint32_t architecture;
  std::uint64_t flags = 0;
  std::uint32_t header_bytes = 64;
  std::size_t code_bytes = 40;
};

// One fat binary, as nvcc writes it for a source file.
inline std::string fat_binary(const std::vector<FatEntry>& entries) {
  std::string body;
  for (const FatEntry& entry : entries) {
    const std::size_t begin = body.size();
    put(body, entry.kind);
    put(body, std::uint16_t{0x101});
    put(body, entry.header_bytes);
    put(body, std::uint64_t{entry.code_bytes});
    put(body, std::uint64_t{0});
    put(body, std::uint16_t{8});
    put(body, std::uint16_t{1});
    put(body, entry.architecture);
    put(body, std::uint64_t{0});
    put(body, entry.flags);
    body.resize(begin + entry.header_bytes + entry.code_bytes, '\x5a');
  }
  std::string binary;
  put(binary, std::uint32_t{0xBA55ED50});
  put(binary, std::uint16_t{1});
  put(binary, std::uint16_t{16});
  put(binary, std::uint64_t{body.size()});
  return binary + body;
}

}  // namespace reelgrad::test
