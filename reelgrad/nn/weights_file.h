// Files of weights of any kind, known by what is in them and not by their names.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reelgrad/nn/weights.h"

namespace reelgrad {

struct WeightsFile {
  NamedTensors tensors;  // on the CPU, in the file's order; many are views of the mapped file, some are not contiguous
  std::map<std::string, std::string> metadata;  // all small values beside the weights
  // For the user, without the file's name: what was chosen among what the file has, and what may be wrong with it.
  std::vector<std::string> notes, warnings;
};

// A safetensors file or one of torch.save. Throws failed, naming the file: for other files, for TorchScript (which is a
// network: see is_torchscript) and for damaged ones.
WeightsFile read_weights(const std::filesystem::path& path);

// read_weights(), with its notes and warnings logged.
WeightsFile read_weights_logged(const std::filesystem::path& path);

bool is_torchscript(const std::filesystem::path& path);

}  // namespace reelgrad
