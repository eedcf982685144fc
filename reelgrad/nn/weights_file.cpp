#include "reelgrad/nn/weights_file.h"

#include <fmt/format.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/mapped_file.h"
#include "reelgrad/base/model_file.h"
#include "reelgrad/nn/torch_file.h"
#include "reelgrad/nn/zip_file.h"

namespace reelgrad {
namespace {

WeightsFile from_safetensors(const std::filesystem::path& path) {
  SafetensorsFile file = read_safetensors(path);
  WeightsFile weights{.tensors = std::move(file.tensors), .metadata = std::move(file.metadata)};
  const std::string extension = path.extension().string();
  if (extension != ".safetensors") {
    weights.notes.push_back(fmt::format("a safetensors file, in spite of its name's \"{}\"", extension));
  }
  return weights;
}

[[noreturn]] void fail_unknown(const std::filesystem::path& path) {
  const MappedFile file(path);  // says what is no file at all
  fail(fmt::format("{}: neither a .safetensors file nor one of torch.save ({} bytes, which begin as neither does)",
                   path.string(), file.bytes().size()));
}

}  // namespace

WeightsFile read_weights(const std::filesystem::path& path) {
  switch (model_file_kind(path)) {
    case ModelFileKind::safetensors:
      return from_safetensors(path);
    case ModelFileKind::zip:
    case ModelFileKind::pickle:
      return read_torch_file(path);
    case ModelFileKind::tar:
      fail(fmt::format("{}: a tar archive, as PyTorch before 0.1.10 wrote: load and save it with a newer PyTorch first",
                       path.string()));
    case ModelFileKind::other:
      break;
  }
  // A damaged one begins as anything; its reader says what is wrong with it.
  if (path.extension() == ".safetensors") return from_safetensors(path);
  fail_unknown(path);
}

WeightsFile read_weights_logged(const std::filesystem::path& path) {
  WeightsFile weights = read_weights(path);
  for (const std::string& note : weights.notes) log::info(fmt::format("{}: {}", path.string(), note));
  for (const std::string& warning : weights.warnings) log::warning(fmt::format("{}: {}", path.string(), warning));
  return weights;
}

bool is_torchscript(const std::filesystem::path& path) {
  if (model_file_kind(path) != ModelFileKind::zip) return false;
  const MappedFile file(path);
  return holds_torchscript(ZipReader(file.bytes(), path.string()));
}

}  // namespace reelgrad
