#include "reelgrad/doctor/probes/device_nodes_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <sstream>
#include <string_view>

#include "reelgrad/base/descriptor.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr int kNoCard = -1;

// N of "nvidiaN".
int card_number(std::string_view name) {
  constexpr std::string_view kStart = "nvidia";
  int number = kNoCard;
  if (!name.starts_with(kStart)) return kNoCard;
  const auto [stop, error] = std::from_chars(name.data() + kStart.size(), name.data() + name.size(), number);
  return error == std::errc{} && stop == name.data() + name.size() ? number : kNoCard;
}

bool is_wanted(std::string_view name) {
  return card_number(name) != kNoCard || name == "nvidiactl" || name == "nvidia-uvm" || name == "dxg";
}

// The third field's name in "root:x:0:…", the form of the files of users and groups. Asking the C library could ask a
// server.
std::string name_of_id(const std::string& list, unsigned id) {
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name, password, number;
    std::getline(fields, name, ':');
    std::getline(fields, password, ':');
    std::getline(fields, number, ':');
    if (number == std::to_string(id)) return name;
  }
  return std::to_string(id);
}

bool is_in_group(gid_t group) {
  if (group == ::getegid()) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  return count > 0 && std::find(groups.begin(), groups.begin() + count, group) != groups.begin() + count;
}

// As for an ordinary user, also where this process runs as root.
int error_by_mode(const struct stat& about) {
  constexpr mode_t kReadWrite = 06;
  const mode_t mode = about.st_uid == ::geteuid() ? about.st_mode >> 6
                      : is_in_group(about.st_gid) ? about.st_mode >> 3
                                                  : about.st_mode;
  return (mode & kReadWrite) == kReadWrite ? 0 : EACCES;
}

int error_by_opening(const fs::path& node, const struct stat& about) {
  if (!S_ISCHR(about.st_mode)) return ENODEV;  // a file that was left where the node belongs
  const Descriptor opened(::open(node.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  return opened ? 0 : errno;
}

DeviceNodeFacts node_facts(const RootFiles& files, const std::string& name, NodeCheck check) {
  DeviceNodeFacts facts{.path = "/dev/" + name};
  const fs::path node = files.host_path(facts.path);
  struct stat about {};
  int error = ::stat(node.c_str(), &about) == 0 ? 0 : errno;
  if (error == 0) {
    facts.owner = fmt::format("{}:{} {:04o}", name_of_id(files.text("/etc/passwd"), about.st_uid),
                              name_of_id(files.text("/etc/group"), about.st_gid), about.st_mode & 07777);
    error = check == NodeCheck::opened ? error_by_opening(node, about) : error_by_mode(about);
  }
  facts.usable = error == 0;
  if (error != 0) facts.error = std::generic_category().message(error);
  return facts;
}

}  // namespace

std::vector<DeviceNodeFacts> probe_device_nodes(const RootFiles& files, NodeCheck check) {
  std::vector<std::string> names = files.names("/dev");
  std::erase_if(names, [](const std::string& name) { return !is_wanted(name); });
  // nvidia10 after nvidia9; the others after the cards.
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return static_cast<unsigned>(card_number(a)) < static_cast<unsigned>(card_number(b));
  });
  std::vector<DeviceNodeFacts> nodes;
  for (const std::string& name : names) nodes.push_back(node_facts(files, name, check));
  return nodes;
}

}  // namespace reelgrad
