#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace reelgrad {

// JSON: {"kind": "model" | "checkpoint" | "run", "path", "file", "arch", "scale", "tensors", …}; of no architecture
// that is known: "arch" null, "problem" in words and "nearest": [{"arch", "scale", "options", "fitting" of "tensors",
// "key": the first that differs, its shapes "expected" and "found" (null: none)}]; "kind" "discriminator" with its
// options and "use". Throws failed when there is nothing to read.
std::string inspect_model(const std::filesystem::path& path);

// JSON: {"kind": "architecture", "arch", "help", "options": [{name, value, default, allowed, help}], "scales",
// "window", "parameters", "gflops_per_megapixel" (of input), "receptive_radius_px" (null: the whole picture),
// "size_multiple"}. `options` are the architecture's own and "scale"; others have their defaults. Throws usage for what
// is not offered.
std::string inspect_architecture(const std::string& name, const std::map<std::string, std::string>& options);

}  // namespace reelgrad
