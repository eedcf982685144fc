#include "reelgrad/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "reelgrad/base/descriptor.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"

namespace reelgrad {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const std::string name = path.string();
  // O_NONBLOCK: a pipe that nobody writes to would wait for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT) fail(fmt::format("{}: no such file", name));
  if (!file) fail(fmt::format("{}: cannot be opened: {}", name, errno_name(errno)));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(fmt::format("{}: cannot be read: {}", name, errno_name(errno)));
  if (!S_ISREG(status.st_mode)) fail(fmt::format("{}: is not a file", name));
  if (status.st_size == 0) return;  // nothing can be mapped
  const auto size = static_cast<std::size_t>(status.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), /*offset=*/0);
  if (start == MAP_FAILED) fail(fmt::format("{}: cannot be mapped: {}", name, errno_name(errno)));
  bytes_ = {static_cast<std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace reelgrad
