#include "reelgrad/base/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

namespace reelgrad {

namespace fs = std::filesystem;

DynamicLibrary::DynamicLibrary(const fs::path& name, Symbols symbols)
    : handle_(symbols == Symbols::own ? ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)
                                      : ::dlopen(name.c_str(), RTLD_LAZY | RTLD_GLOBAL)) {
  if (handle_) return;
  const char* reason = ::dlerror();
  error_ = reason ? reason : name.string() + " cannot be opened";
}

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ ? ::dlsym(handle_, name) : nullptr;
}

fs::path library_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) && info.dli_fname ? fs::path(info.dli_fname).lexically_normal() : fs::path();
}

std::optional<fs::path> mapped_library(std::string_view file_name) {
  struct Search {
    std::string ending;
    std::string found;
  } search{"/" + std::string(file_name), {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        Search& search = *static_cast<Search*>(data);
        if (!std::string_view(info->dlpi_name).ends_with(search.ending)) return 0;
        search.found = info->dlpi_name;
        return 1;
      },
      &search);
  if (search.found.empty()) return std::nullopt;
  return fs::absolute(search.found);
}

void set_environment(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), /*overwrite=*/1);
}

void set_environment_default(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), /*overwrite=*/0);
}

}  // namespace reelgrad
