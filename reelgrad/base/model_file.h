// Files of weights, known by how they begin and never by their names: people rename them.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace reelgrad {

enum class ModelFileKind {
  other,
  safetensors,
  zip,     // torch.save since PyTorch 1.6, and TorchScript
  pickle,  // torch.save before it
  tar,     // torch.save before 0.1.10
};

ModelFileKind model_file_kind(std::span<const std::byte> first_bytes);

// `other` also for what is no file or cannot be read.
ModelFileKind model_file_kind(const std::filesystem::path& path);

}  // namespace reelgrad
