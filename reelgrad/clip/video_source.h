#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "reelgrad/clip/core.h"

namespace reelgrad {

struct SourceNode {
  VSNode* node;             // the caller's
  std::string host_reason;  // why its frames are not in the card's memory, when they are not
};

// The node of a video file or a folder of images, opened by whichever source plugin is installed: BestSource, L-SMASH
// Works, FFMS2; for folders imageseqs, then ImageMagick's reader. Where the core has its card and that decodes the
// file, BestSource leaves the frames there. Indexes go into reelgrad's cache folder. Throws (failed) with each plugin's
// words, or with what to install.
SourceNode open_video_file(const Core& core, const std::filesystem::path& path);
SourceNode open_image_folder(const Core& core, const std::filesystem::path& folder);

// The source plugins a core has, by their namespaces: "bs", "lsmas", "ffms2", "imgseqs", "imwri".
std::vector<std::string> installed_source_plugins(const VSAPI* api, VSCore* core);

}  // namespace reelgrad
