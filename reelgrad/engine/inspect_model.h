#pragma once
#include <filesystem>
#include <string>

namespace reelgrad {

// JSON: {"kind": "model" | "checkpoint" | "run", "path", "file", "arch", "scale", "tensors", …}. Throws failed when
// there is nothing to read.
std::string inspect_model(const std::filesystem::path& path);

}  // namespace reelgrad
