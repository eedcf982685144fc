#include "reelgrad/cli/made_of.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/cli/common.h"

namespace reelgrad::cli {
namespace {

namespace fs = std::filesystem;

std::string hash_of(const std::string& text) {
  return xxh3_128_hex(std::as_bytes(std::span(text)));
}

// Its size, and the hash of blocks spread over it.
std::string sampled_hash(const fs::path& file) {
  constexpr std::uintmax_t kBlock = 64 << 10, kBlocks = 64;
  const std::uintmax_t size = fs::file_size(file);
  if (size <= kBlock * kBlocks) return fmt::format("{} bytes, {}", size, xxh3_128_hex(file));
  std::ifstream stream(file, std::ios::binary);
  std::string bytes(kBlock * kBlocks, '\0');
  for (std::uintmax_t i = 0; i < kBlocks; ++i) {
    stream.seekg(static_cast<std::streamoff>((size - kBlock) / (kBlocks - 1) * i));
    stream.read(bytes.data() + i * kBlock, kBlock);
  }
  if (!stream) fail(fmt::format("{}: cannot be read", file.string()));
  return fmt::format("{} bytes, {}", size, hash_of(bytes));
}

std::string listing_hash(const fs::path& folder) {
  std::vector<std::string> lines;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    lines.push_back(fmt::format("{} {} {}\n", entry.path().filename().string(), entry.file_size(),
                                entry.last_write_time().time_since_epoch().count()));
  }
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return fmt::format("{} files, {}", lines.size(), hash_of(all));
}

std::string content_of(const fs::path& clip) {
  return fs::is_directory(clip) ? listing_hash(clip) : sampled_hash(clip);
}

fs::path weights_of(const fs::path& model) {
  if (!fs::is_directory(model)) return model;
  InspectResult result;
  engine().inspect_model(model, result).raise();
  return nlohmann::json::parse(result.json).at("weights").get<std::string>();
}

std::string number(double value) {
  return fmt::format("{:g}", value);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> made_of(const RestoreRequest& restore, const RestorerSession& session,
                                                         const ClipArgument& clip, const WindowOptions& windows) {
  std::vector<std::pair<std::string, std::string>> made{
      {"clip", content_of(clip.path)},
      {"model", xxh3_128_hex(weights_of(restore.model))},
      {"precision and device", session.arithmetic()},
      {"tile", std::to_string(restore.tile_px)},
      {"overlap", std::to_string(restore.overlap_px)},
      {"strength", number(restore.strength)},
      {"ensemble", restore.ensemble ? "yes" : "no"},
      {"sigma", restore.sigma ? number(*restore.sigma) : ""},
      {"dither", restore.dither == Dither::none ? "none" : "ordered"},
      {"matrix-in", restore.overrides.matrix_in},
      {"range-in", restore.overrides.range_in},
      {"chromaloc-in", restore.overrides.chromaloc_in},
      {"window-ends", windows.ends == WindowEnds::mirror ? "mirror" : "repeat"},
      {"scene cuts", windows.scene_cuts ? "yes" : "no"}};
  for (const auto& [name, value] : clip.args) made.emplace_back("arg " + name, value);
  return made;
}

}  // namespace reelgrad::cli
