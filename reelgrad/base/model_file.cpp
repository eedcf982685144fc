#include "reelgrad/base/model_file.h"

#include <cstdint>
#include <fstream>
#include <string_view>

namespace reelgrad {
namespace {

constexpr std::size_t kLongestStart = 512;  // a tar's first block

// A length below 2^32, little-endian in eight bytes, and the JSON that is so long.
bool begins_as_safetensors(std::string_view start) {
  constexpr std::string_view kHighBytes("\0\0\0\0", 4);
  return start.size() > 8 && start.substr(4, 4) == kHighBytes && start[8] == '{';
}

// Protocols 2 to 5; what torch.save began such files with before protocol 2 is not known.
bool begins_as_pickle(std::string_view start) {
  return start.size() > 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;
}

bool begins_as_tar(std::string_view start) {
  constexpr std::size_t kMagicAt = 257;
  return start.size() >= kLongestStart && start.substr(kMagicAt, 5) == "ustar";
}

}  // namespace

ModelFileKind model_file_kind(std::span<const std::byte> first_bytes) {
  const std::string_view start(reinterpret_cast<const char*>(first_bytes.data()), first_bytes.size());
  if (start.starts_with("PK\x03\x04")) return ModelFileKind::zip;
  if (begins_as_pickle(start)) return ModelFileKind::pickle;
  if (begins_as_safetensors(start)) return ModelFileKind::safetensors;
  if (begins_as_tar(start)) return ModelFileKind::tar;
  return ModelFileKind::other;
}

ModelFileKind model_file_kind(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return ModelFileKind::other;
  std::byte start[kLongestStart];
  std::ifstream stream(path, std::ios::binary);
  stream.read(reinterpret_cast<char*>(start), sizeof start);
  return model_file_kind({start, static_cast<std::size_t>(stream.gcount())});
}

}  // namespace reelgrad
