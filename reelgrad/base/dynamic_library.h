// Libraries opened at run time, and the environment variables that they read. Opened libraries are never closed:
// neither the CUDA driver, nor Python, nor torch survives that.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace reelgrad {

class DynamicLibrary {
 public:
  // own: its symbols are seen by nobody else; shared: by every library that is opened later (Python's modules need
  // that).
  enum class Symbols { own, shared };

  // `name` with a slash is a file, without one it is searched for as the dynamic linker does.
  explicit DynamicLibrary(const std::filesystem::path& name, Symbols symbols = Symbols::own);

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }  // the linker's words, when it could not be opened

  // nullptr when the library was not opened or has no such function.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  void* handle_;
  std::string error_;
};

// The file that `address` (of a function) was loaded from; empty when unknown.
std::filesystem::path library_of(const void* address);

// The file of a library that this process has mapped, by the name of its file.
std::optional<std::filesystem::path> mapped_library(std::string_view file_name);

// Only before the threads that read the environment are started.
void set_environment(const char* name, const std::string& value);
void set_environment_default(const char* name, const std::string& value);  // unless the user has set it

}  // namespace reelgrad
