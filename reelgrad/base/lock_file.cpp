#include "reelgrad/base/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"

namespace reelgrad {
namespace {

std::string holder(const Descriptor& file) {
  std::array<char, 32> text{};
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  if (size <= 0) return "another process";
  return fmt::format("process {}", std::string(text.data(), static_cast<std::size_t>(size)));
}

}  // namespace

LockFile::LockFile(const std::filesystem::path& path, const std::string& what)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (!file_) fail(fmt::format("cannot create {}: {}", path.string(), errno_name(errno)));
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) fail(fmt::format("{} is in use by {}", what, holder(file_)));
    // Some network file systems have no locks: then nobody can be kept out.
    if (errno == ENOLCK || errno == EOPNOTSUPP) return;
    fail(fmt::format("cannot lock {}: {}", path.string(), errno_name(errno)));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(file_.get(), 0) != 0 || ::pwrite(file_.get(), pid.data(), pid.size(), 0) < 0) {
    fail(fmt::format("cannot write {} ({} bytes): {}", path.string(), pid.size(), errno_name(errno)));
  }
}

}  // namespace reelgrad
