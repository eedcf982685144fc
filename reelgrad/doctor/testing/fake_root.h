// For tests: a machine's root folder, with the files that a test gives it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad::test {

class FakeRoot {
 public:
  using Texts = std::initializer_list<std::pair<const char*, const char*>>;

  explicit FakeRoot(Texts texts = {}) : folder_("root") { write(texts); }

  const std::filesystem::path& path() const { return folder_.path(); }
  RootFiles files() const { return RootFiles(folder_.path()); }
  std::filesystem::path host(const std::filesystem::path& path) const { return files().host_path(path); }

  void write(const std::filesystem::path& file, const std::string& text) const {
    folder_.write(file.relative_path(), text);
  }
  void write(Texts texts) const {
    for (const auto& [file, text] : texts) write(file, std::string(text));
  }
  void link(const std::filesystem::path& name, const std::filesystem::path& target) const {
    std::filesystem::create_directories(host(name).parent_path());
    std::filesystem::create_symlink(target, host(name));
  }

  // An /etc/ld.so.cache of these names and paths, as ldconfig writes it; 32-bit ones may be among them.
  struct Cached {
    std::string name, path;
    std::uint32_t flags = 0x0303;
  };
  void write_linker_cache(const std::vector<Cached>& libraries, const std::string& before = "") const {
    std::string strings, entries;
    const auto add = [](std::string& to, auto number) {
      to.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    const std::size_t begin = 48 + 24 * libraries.size();
    const auto place = [&](const std::string& text) {
      const auto offset = static_cast<std::uint32_t>(begin + strings.size());
      strings += text + '\0';
      return offset;
    };
    for (const Cached& library : libraries) {
      add(entries, library.flags);
      add(entries, place(library.name));
      add(entries, place(library.path));
      add(entries, std::uint32_t{0});
      add(entries, std::uint64_t{0});
    }
    std::string header = "glibc-ld.so.cache1.1";
    add(header, static_cast<std::uint32_t>(libraries.size()));
    add(header, static_cast<std::uint32_t>(strings.size()));
    header.resize(48, '\0');
    write("/etc/ld.so.cache", before + header + entries + strings);
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace reelgrad::test
