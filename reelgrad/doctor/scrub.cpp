// Facts that may be shown to anybody. Texts are searched by hand: a report can be of any length, which std::regex does
// not survive.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/facts_json.h"

namespace reelgrad {
namespace {

using nlohmann::json;

bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c));
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool is_slash(char c) {
  return c == '/' || c == '\\';
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// How many begin here; longer rows than a domain's are no addresses, and are not counted to their end.
std::size_t hex_digits(std::string_view text, std::size_t at) {
  constexpr std::size_t kMost = 9;
  std::size_t count = 0;
  while (count < kMost && at + count < text.size() && is_hex(text[at + count])) ++count;
  return count;
}

bool starts_word(std::string_view text, std::size_t at) {
  return at == 0 || !is_word(text[at - 1]);
}

// What stands at a place of the text, and what to write instead.
struct Replacement {
  std::size_t length;
  std::string by;
};
using Matcher = std::function<std::optional<Replacement>(std::string_view text, std::size_t at)>;

std::string replaced(std::string_view text, const Matcher& match) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (const auto found = match(text, at)) {
      result += found->by;
      at += found->length;
    } else {
      result += text[at++];
    }
  }
  return result;
}

// Numbers things in the order in which they are met.
class Numbering {
 public:
  int of(const std::string& thing) { return numbers_.emplace(thing, static_cast<int>(numbers_.size())).first->second; }
  const std::map<std::string, int>& all() const { return numbers_; }

 private:
  std::map<std::string, int> numbers_;
};

// UUIDs of cards, whole or cut short as CUDA_VISIBLE_DEVICES allows: zeros with the card's number in front, so that a
// short one still begins a whole one.
class Uuids {
 public:
  std::optional<Replacement> match(std::string_view text, std::size_t at) {
    constexpr std::size_t kPrefix = 4, kShortest = 4, kDistinct = 8, kWhole = 36;
    const std::string_view prefix = text.substr(at, kPrefix);
    if (prefix != "GPU-" && prefix != "MIG-") return std::nullopt;
    std::size_t length = 0;
    while (length < kWhole && at + kPrefix + length < text.size() &&
           (is_hex(text[at + kPrefix + length]) || text[at + kPrefix + length] == '-'))
      ++length;
    if (length < kShortest) return std::nullopt;
    const std::string zeros =
        fmt::format("{:08x}-0000-0000-0000-000000000000", number_of(lower_case(text.substr(at + kPrefix, length))));
    return Replacement{kPrefix + length, std::string(prefix) + zeros.substr(0, std::max(length, kDistinct))};
  }

 private:
  int number_of(const std::string& uuid) {
    for (const auto& [known, number] : numbers_.all()) {
      if (known.starts_with(uuid)) return number;
    }
    return numbers_.of(uuid);
  }

  Numbering numbers_;
};

// "0000:65:00.0", and NVML's "00000000:65:00.0": domain and bus become a number, device and function stay.
class PciAddresses {
 public:
  std::optional<Replacement> match(std::string_view text, std::size_t at) {
    const std::size_t domain = hex_digits(text, at);
    if ((domain != 4 && domain != 8) || !starts_word(text, at)) return std::nullopt;
    const std::string_view rest = text.substr(at + domain);
    const bool is_address =
        rest.size() >= 6 && rest[0] == ':' && hex_digits(rest, 1) == 2 && rest[3] == ':' && hex_digits(rest, 4) == 2;
    if (!is_address) return std::nullopt;
    const std::string name = lower_case(text.substr(at + domain - 4, 4 + 3));
    return Replacement{domain + 3, fmt::format("0000:{:02x}", buses_.of(name) + 1)};
  }

 private:
  Numbering buses_;
};

// The name of a home folder: /home/NAME, /Users/NAME, C:\Users\NAME, /media/NAME. Returns its length, 0 when none
// begins here. A name may have spaces when a slash ends it.
std::size_t home_name(std::string_view text, std::size_t at) {
  bool after_folder = false;
  for (const std::string_view folder : {"home", "Users", "media"}) {
    const bool before = at >= folder.size() + 2 && text.substr(at - folder.size() - 1, folder.size()) == folder &&
                        is_slash(text[at - 1]) && is_slash(text[at - folder.size() - 2]);
    after_folder = after_folder || before;
  }
  if (!after_folder) return 0;
  constexpr std::string_view kEnds = "/\\:;,'\"\n";
  const std::size_t end = std::min(text.find_first_of(kEnds, at), text.size());
  const std::size_t space = std::min(text.find(' ', at), end);
  const bool ends_in_slash = end < text.size() && is_slash(text[end]) && text[end - 1] != ' ';
  return (ends_in_slash ? end : space) - at;
}

// Names of users, learnt from their home folders and met in other paths and among owners.
class Users {
 public:
  void learn(std::string_view text) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t length = home_name(text, at);
      if (length >= 3 && !is_common(text.substr(at, length))) names_.emplace(text.substr(at, length));
    }
  }

  std::optional<Replacement> match(std::string_view text, std::size_t at) const {
    if (const std::size_t length = home_name(text, at)) return Replacement{length, "user"};
    if (const auto host = account(text, at)) return host;
    if (const auto root = root_home(text, at)) return root;
    if (at == 0 || !is_slash(text[at - 1])) return std::nullopt;
    const std::size_t end = std::min(text.find_first_of("/\\:;,'\" \n", at), text.size());
    if (!names_.contains(text.substr(at, end - at))) return std::nullopt;
    return Replacement{end - at, "user"};
  }

 private:
  static bool is_common(std::string_view name) {
    static constexpr std::array<std::string_view, 12> kCommon{"user",   "root", "ubuntu", "debian", "data", "runs",
                                                              "python", "lib",  "opt",    "torch",  "cuda", "nvidia"};
    return std::find(kCommon.begin(), kCommon.end(), name) != kCommon.end();
  }

  // /root, not /root2 nor /chroot nor /srv/root.
  static std::optional<Replacement> root_home(std::string_view text, std::size_t at) {
    constexpr std::string_view kRoot = "/root";
    const bool begins = at == 0 || (!is_word(text[at - 1]) && text[at - 1] != '-' && text[at - 1] != '.');
    const std::size_t end = at + kRoot.size();
    if (!begins || text.substr(at, kRoot.size()) != kRoot) return std::nullopt;
    if (end < text.size() && (is_word(text[end]) || text[end] == '-' || text[end] == '.')) return std::nullopt;
    return Replacement{kRoot.size(), "/home/user"};
  }

  // "alice@tower.example".
  static std::optional<Replacement> account(std::string_view text, std::size_t at) {
    const auto is_part = [](char c) { return is_word(c) || c == '-' || c == '.'; };
    if (!is_word(text[at]) || (at > 0 && is_part(text[at - 1]))) return std::nullopt;
    std::size_t middle = at;
    while (middle < text.size() && is_part(text[middle])) ++middle;
    if (middle + 1 >= text.size() || text[middle] != '@' || !is_word(text[middle + 1])) return std::nullopt;
    std::size_t end = middle + 1;
    while (end < text.size() && is_part(text[end])) ++end;
    return Replacement{end - at, "user@host"};
  }

  std::set<std::string, std::less<>> names_;
};

class Scrubber {
 public:
  void learn(const json& value) {
    if (value.is_string()) users_.learn(value.get_ref<const std::string&>());
    if (!value.is_structured()) return;
    for (const json& inner : value) learn(inner);
  }

  std::string text(std::string_view original) {
    const std::string named = replaced(original, [&](auto text, auto at) { return users_.match(text, at); });
    return replaced(named, [&](std::string_view text, std::size_t at) {
      const auto uuid = uuids_.match(text, at);
      return uuid ? uuid : addresses_.match(text, at);
    });
  }

  void all_texts(json& value) {
    if (value.is_string()) value = text(value.get_ref<const std::string&>());
    if (!value.is_structured()) return;
    for (json& inner : value) all_texts(inner);
  }

 private:
  Users users_;
  Uuids uuids_;
  PciAddresses addresses_;
};

// Numbers, architectures and the flavours of distributions. What else stands in a release is somebody's own.
bool is_public_part(std::string part) {
  static const std::set<std::string, std::less<>> kParts{
      "",         "aarch", "amd",      "amzn",       "arch",   "arm",      "aws",      "azure",     "bpo",
      "cachyos",  "cloud", "custom",   "deb",        "el",     "fc",       "gcp",      "generic",   "gke",
      "hwe",      "ibm",   "liquorix", "lowlatency", "lts",    "hardened", "manjaro",  "microsoft", "nvidia",
      "oracle",   "oem",   "pve",      "raspi",      "rc",     "rpi",      "rt",       "standard",  "tegra",
      "uek",      "v",     "wsl",      "x",          "xanmod", "zen",      "default",  "desktop",   "linuxkit",
      "orbstack", "k",     "open",     "preempt",    "server", "unstable", "mainline", "linux"};
  part = lower_case(part);
  part.erase(part.find_last_not_of("0123456789") + 1);
  return kParts.contains(part);
}

// Up to the first part that is not public: "6.1.0-30-amd64-tower" -> "6.1.0-30-amd64".
std::string kernel_without_build(const std::string& kernel) {
  constexpr std::string_view kBetween = "-.+_~";
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin <= kernel.size();) {
    const std::size_t end = std::min(kernel.find_first_of(kBetween, begin), kernel.size());
    if (!is_public_part(kernel.substr(begin, end - begin))) break;
    kept = end;
    begin = end + 1;
  }
  return kernel.substr(0, kept);
}

// Where runs are is told by what kind of place it is; the rest of the path is a project's name.
std::string place_only(const std::string& path) {
  if (path.size() <= 1) return path;
  constexpr std::string_view kHome = "/user";
  const std::size_t home = path.find(kHome);
  const bool in_home = home != std::string::npos && home > 0;
  std::size_t end = in_home ? home + kHome.size() : std::min(path.find('/', 1), path.size());
  const bool shared = path.starts_with("/mnt/") || path.starts_with("/run/") || path.starts_with("/media/");
  if (!in_home && shared) end = std::min(path.find('/', end + 1), path.size());
  return path.substr(0, end) + "/run";
}

// "alice:video 0660": the system's own names say what to do about them, others nothing.
std::string owner_without_names(const std::string& owner) {
  static const std::set<std::string, std::less<>> kSystem{"root",  "video", "render",  "nobody",   "nogroup",
                                                          "users", "wheel", "plugdev", "vglusers", "input"};
  const std::size_t colon = owner.find(':'), space = owner.find(' ');
  if (colon == std::string::npos || space == std::string::npos || space < colon) return owner;
  const auto name = [](const std::string& own, const char* instead) { return kSystem.contains(own) ? own : instead; };
  return name(owner.substr(0, colon), "user") + ":" + name(owner.substr(colon + 1, space - colon - 1), "group") +
         owner.substr(space);
}

}  // namespace

Facts scrubbed(const Facts& facts) {
  Scrubber scrubber;
  json everything = facts;
  scrubber.learn(everything);
  // Cards first, so that their numbers are those of the order in which they are listed.
  for (const DeviceFacts& device : facts.devices) scrubber.text(device.uuid);
  for (const PciCardFacts& card : facts.pci_cards) scrubber.text(card.address);
  scrubber.all_texts(everything);

  Facts clean = everything.get<Facts>();
  clean.system.kernel = kernel_without_build(facts.system.kernel);
  clean.system.run_dir = place_only(clean.system.run_dir);
  for (DeviceNodeFacts& node : clean.device_nodes) node.owner = owner_without_names(node.owner);
  int processes = 0;
  for (DeviceFacts& device : clean.devices) {
    for (ProcessFacts& process : device.processes) {
      process.pid = ++processes;
      if (!process.name.empty()) process.name = "program";
    }
  }
  return clean;
}

}  // namespace reelgrad
