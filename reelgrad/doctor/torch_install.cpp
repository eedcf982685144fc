#include "reelgrad/doctor/torch_install.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "reelgrad/base/files.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

bool is_torch(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / "lib/libtorch.so", error);
}

std::optional<std::string> text_of(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  return read_file(file);
}

// The string that version.py gives to `name`: `cuda: Optional[str] = '13.0'`. None and a missing line are nullopt.
std::optional<std::string> python_string(const std::string& source, std::string_view name) {
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const char after = line.size() > name.size() ? line[name.size()] : '\0';
    if (after != ' ' && after != ':' && after != '=') continue;
    const std::size_t open = line.find_first_of("'\"", line.find('='));
    if (open == std::string::npos) return std::nullopt;
    return line.substr(open + 1, line.find(line[open], open + 1) - open - 1);
  }
  return std::nullopt;
}

// "2.11.0+cu130" -> "13.0"
std::string cuda_of_version(std::string_view version) {
  const std::size_t mark = version.find("+cu");
  if (mark == std::string_view::npos) return "";
  const std::string digits(version.substr(mark + 3));
  if (digits.size() < 3) return "";
  return fmt::format("{}.{}", digits.substr(0, digits.size() - 1), digits.back());
}

// The site-packages that this binary is installed in, or those of the environment whose bin/ holds it.
std::vector<fs::path> site_packages_around(const fs::path& binary) {
  std::vector<fs::path> found;
  for (fs::path folder = binary.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages") found.push_back(folder);
  }
  const fs::path lib = binary.parent_path().parent_path() / "lib";
  std::error_code error;
  for (fs::directory_iterator entry(lib, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with("python3")) found.push_back(entry->path() / "site-packages");
  }
  return found;
}

std::optional<fs::path> find_torch_folder(std::string& why) {
  if (const char* named = std::getenv("REELGRAD_TORCH"); named && *named) {
    if (is_torch(named)) return fs::absolute(named);
    why = fmt::format("REELGRAD_TORCH={} has no lib/libtorch.so", named);
    return std::nullopt;
  }
  std::vector<fs::path> candidates = site_packages_around(this_library_path());
  for (fs::path& candidate : candidates) candidate /= "torch";
  candidates.emplace_back(REELGRAD_BUILD_TORCH_DIR);
  why = "no lib/libtorch.so in";
  for (const fs::path& candidate : candidates) {
    if (is_torch(candidate)) return candidate;
    why += fmt::format("{} {}", &candidate == &candidates.front() ? "" : ",", candidate.string());
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> torch_version(const fs::path& dir) {
  if (const auto source = text_of(dir / "version.py")) return python_string(*source, "__version__");
  // The archives from pytorch.org have no Python files.
  auto text = text_of(dir / "build-version");
  if (text) text->erase(text->find_last_not_of(" \r\n") + 1);
  return text;
}

std::optional<TorchInstall> read_torch(const fs::path& dir) {
  if (!is_torch(dir)) return std::nullopt;
  TorchInstall torch{.dir = dir, .version = torch_version(dir).value_or("")};
  const auto source = text_of(dir / "version.py");
  torch.cuda = source ? python_string(*source, "cuda").value_or("") : cuda_of_version(torch.version);
  return torch;
}

std::optional<TorchInstall> find_torch(std::string* why) {
  std::string reason;
  const auto dir = find_torch_folder(reason);
  if (dir) return read_torch(*dir);
  if (why) *why = reason;
  return std::nullopt;
}

}  // namespace reelgrad
