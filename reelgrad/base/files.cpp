#include "reelgrad/base/files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "reelgrad/base/descriptor.h"
#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryMark = ".reelgrad-tmp-";
constexpr std::size_t kLongestStem = 180;  // of NAME_MAX 255: leaves room for the mark, two numbers and an extension

[[noreturn]] void fail_errno(std::string_view attempt, const fs::path& path, int error) {
  fail(fmt::format("cannot {} {}: {}", attempt, path.string(), errno_name(error)));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// ".out.reelgrad-tmp-1234-0.mkv" beside out.mkv: hidden, unique in this process and among the living ones.
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<int> count{0};
  const std::string stem = path.stem().string().substr(0, kLongestStem);
  return folder_of(path) /
         fmt::format(".{}{}{}-{}{}", stem, kTemporaryMark, ::getpid(), count++, path.extension().string());
}

Descriptor open_or_fail(const fs::path& path, int flags, std::string_view attempt) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!file) fail_errno(attempt, path, errno);
  return file;
}

void write_all(const Descriptor& file, std::string_view bytes, const fs::path& path) {
  const std::size_t size = bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(fmt::format("cannot write {} ({} bytes): {}", path.string(), size, errno_name(errno)));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void sync(const fs::path& path) {
  const Descriptor file = open_or_fail(path, O_RDONLY, "open");
  // EINVAL: this file system cannot sync such a file (pipes, some network folders); there is nothing more to do.
  if (::fsync(file.get()) != 0 && errno != EINVAL) fail_errno("save", path, errno);
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("create", to, errno);
}

void sync_tree(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    if (error) break;
    if (entry->is_regular_file() || entry->is_directory()) sync(entry->path());
  }
  if (error) fail_errno("read the folder", folder, error.value());
  sync(folder);
}

// The old folder's data ends under `from`. Without exchange (some network file systems) a moment exists in which only
// temporary names do.
void exchange_folders(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) fail_errno("replace the folder", to, errno);
  const fs::path old = temporary_beside(to);
  rename_or_fail(to, old);
  rename_or_fail(from, to);
  rename_or_fail(old, from);
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_errno("create the folder", folder, error.value());
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string errno_name(int error) {
  const char* name = ::strerrorname_np(error);
  const char* description = ::strerrordesc_np(error);
  if (!name || !description) return fmt::format("error {}", error);
  return fmt::format("{} ({})", name, description);
}

std::string read_file(const fs::path& path) {
  const Descriptor file = open_or_fail(path, O_RDONLY, "read");
  std::string bytes;
  std::array<char, 1 << 16> block;
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path, errno);
    if (got == 0) return bytes;
    bytes.append(block.data(), static_cast<std::size_t>(got));
  }
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  PendingFile pending(path);
  {
    const Descriptor file = open_or_fail(pending.path(), O_WRONLY | O_CREAT | O_TRUNC, "create");
    write_all(file, bytes, path);
  }
  pending.commit();
}

void append_bytes(const fs::path& path, std::string_view bytes) {
  const Descriptor file = open_or_fail(path, O_WRONLY | O_CREAT | O_APPEND, "open");
  write_all(file, bytes, path);
}

void append_line(const fs::path& path, std::string_view line) {
  append_bytes(path, fmt::format("{}\n", line));
}

PendingFile::PendingFile(fs::path final_path)
    : final_(std::move(final_path)), temporary_(temporary_beside(final_)), until_committed_(temporary_) {}

PendingFile::~PendingFile() {
  if (!committed_) remove_quietly(temporary_);
}

void PendingFile::commit() {
  sync(temporary_);
  rename_or_fail(temporary_, final_);
  committed_ = true;
  sync(folder_of(final_));
}

PendingFolder::PendingFolder(fs::path final_path) : final_(std::move(final_path)) {
  if (!final_.has_filename()) final_ = final_.parent_path();  // "runs/a/" is runs/a
  temporary_ = temporary_beside(final_);
  make_folders(temporary_);
}

PendingFolder::~PendingFolder() {
  if (!committed_) remove_quietly(temporary_);
}

void PendingFolder::commit() {
  sync_tree(temporary_);
  const bool replaces = fs::exists(final_);
  if (replaces) {
    exchange_folders(temporary_, final_);
  } else {
    rename_or_fail(temporary_, final_);
  }
  committed_ = true;
  sync(folder_of(final_));
  if (replaces) remove_quietly(temporary_);
}

bool PendingFolder::is_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') && name.find(kTemporaryMark) != std::string::npos;
}

std::string xxh3_128_hex(const fs::path& path) {
  const Descriptor file = open_or_fail(path, O_RDONLY, "read");
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  std::vector<char> block(1 << 20);
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path, errno);
    if (got == 0) return to_hex(XXH3_128bits_digest(&state));
    XXH3_128bits_update(&state, block.data(), static_cast<std::size_t>(got));
  }
}

std::string xxh3_128_hex(std::span<const std::byte> bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::uintmax_t free_bytes(const fs::path& folder) {
  fs::path existing = fs::absolute(folder);
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing, error);
  if (error) fail_errno("read the free space of", existing, error.value());
  return space.available;
}

fs::path home_folder() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found);
  if (!found) fail("cannot find the home folder: HOME is not set and the password file has no entry for this user");
  return entry.pw_dir;
}

fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  // The XDG specification: a relative path is invalid and is to be ignored.
  const bool usable = cache && fs::path(cache).is_absolute();
  const fs::path folder = (usable ? fs::path(cache) : home_folder() / ".cache") / "reelgrad";
  make_folders(folder);
  return folder;
}

fs::path executable_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) fail_errno("find this program through", "/proc/self/exe", error.value());
  return path;
}

fs::path this_library_path() {
  Dl_info info{};
  void* map = nullptr;
  static const char here = 0;
  if (::dladdr1(&here, &info, &map, RTLD_DL_LINKMAP) == 0) return executable_path();
  const char* name = static_cast<const link_map*>(map)->l_name;
  if (!name || !*name) return executable_path();  // the main program has no name in the list
  return fs::weakly_canonical(name);
}

}  // namespace reelgrad
