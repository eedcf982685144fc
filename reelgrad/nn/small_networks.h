// For tests: each architecture with options that only take less time than its defaults.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "reelgrad/config/architectures.h"
#include "reelgrad/nn/architectures.h"

namespace reelgrad::test {

// Those that have no file of the user's.
inline std::vector<const Architecture*> own_architectures() {
  std::vector<const Architecture*> rows;
  for (const Architecture& row : architecture_table()) {
    if (row.file_option.empty()) rows.push_back(&row);
  }
  return rows;
}

// Of any architecture that is not named here two blocks are enough.
inline std::map<std::string, std::string> small_options(const ArchitectureEntry& entry) {
  static const std::map<std::string_view, std::map<std::string, std::string>> kOptions{
      {"compact", {{"features", "16"}, {"convs", "3"}}},
      {"dncnn", {{"features", "16"}, {"depth", "4"}}},
      {"drunet", {{"features", "16"}, {"features2", "16"}, {"features3", "24"}, {"features4", "24"}, {"blocks", "1"}}},
      {"esrgan", {{"features", "16"}, {"growth", "8"}, {"blocks", "2"}}},
      {"nafnet", {{"width", "8"}, {"enc_blk_nums", "1,2"}, {"dec_blk_nums", "1,1"}}},
      {"realplksr", {{"features", "16"}, {"blocks", "2"}}},
      {"span", {{"features", "16"}}},
      {"swinir", {{"features", "24"}, {"depths", "2,2"}, {"heads", "3,3"}}},
      {"temporalspan", {{"features", "16"}, {"frame_features", "8"}}},
      {"fastdvdnet", {{"features", "8"}}},
  };
  const auto found = kOptions.find(entry.name);
  if (found != kOptions.end()) return found->second;
  const bool has_blocks = std::ranges::find(entry.options, "blocks", &ArchitectureOption::name) != entry.options.end();
  return has_blocks ? std::map<std::string, std::string>{{"blocks", "2"}} : std::map<std::string, std::string>{};
}

inline NetworkSpec small_spec(const Architecture& row, int scale) {
  const ArchitectureEntry& entry = *find_architecture(row.name);
  return {.arch = std::string(row.name), .scale = scale, .window = entry.window, .options = small_options(entry)};
}

}  // namespace reelgrad::test
