// A library of NVIDIA's driver. Its functions are declared where they are called: neither its headers nor its link
// libraries are on every machine that builds or runs this, and an older driver has fewer of them.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "reelgrad/base/dynamic_library.h"

namespace reelgrad {

class DriverLibrary : public DynamicLibrary {
 public:
  using DynamicLibrary::DynamicLibrary;

  // The function's result, or nullopt when this version of the library has no such function. The arguments' types must
  // be those of its declaration.
  template <class... Args>
  std::optional<int> call(const char* name, Args... args) const {
    auto* called = function<int(Args...)>(name);
    if (!called) return std::nullopt;
    return called(args...);
  }

  template <class... Args>
  bool succeeds(const char* name, Args... args) const {
    return call(name, args...) == 0;
  }

  // The file that has this function, links followed; empty: not known.
  std::filesystem::path file_of(const char* name) const {
    auto* found = function<int()>(name);
    if (!found) return {};
    std::error_code error;
    const std::filesystem::path file = std::filesystem::canonical(library_of(reinterpret_cast<void*>(found)), error);
    return error ? std::filesystem::path() : file;
  }
};

// "580.65.06" of "libcuda.so.580.65.06"; empty for a name that holds no such version.
inline std::string driver_version_in(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  const std::size_t at = name.find(".so.");
  const std::string version = at == std::string::npos ? "" : name.substr(at + 4);
  return version.find('.') == std::string::npos ? "" : version;
}

}  // namespace reelgrad
