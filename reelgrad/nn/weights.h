// Weights as the community keeps them: named tensors in safetensors files, keys as spandrel and the trainers use them.
#pragma once
#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reelgrad/nn/network.h"

namespace reelgrad {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct SafetensorsFile {
  NamedTensors tensors;  // on the CPU, in the file's order: views of the mapped file where they are aligned in it
  std::map<std::string, std::string> metadata;
};

// Strict (header at most 100,000,000 bytes, no overlap, hole, overflow, duplicate key or unknown dtype); allocates by
// the header's length, and for tensors that are not aligned. Throws failed naming the file and the field.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

// The header alone: shapes and dtypes without the data.
struct TensorEntry {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
};
std::vector<TensorEntry> read_safetensors_header(const std::filesystem::path& path,
                                                 std::map<std::string, std::string>* metadata = nullptr);

// As the format calls the type ("F32"), else as torch does.
std::string dtype_name(const torch::Tensor& tensor);

// Written atomically; tensors are made contiguous and brought to the CPU.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// Parameters and buffers under their state_dict names, sharing storage with the network.
NamedTensors state_dict(const torch::nn::Module& network);

// Copies values in; every key must be there once with its shape. Throws failed listing missing, unexpected and
// mismatched keys. `source` names the file in messages.
void load_strict(torch::nn::Module& network, const NamedTensors& state, const std::string& source);

// Whether that would be done.
bool fits(const torch::nn::Module& network, const NamedTensors& state);

// What became of the tensors of a file and of a network when one was loaded into the other as far as it fits.
struct LoadReport {
  std::vector<std::string> loaded, missing, unexpected;
  std::vector<std::string> reshaped;  // there in another shape: they keep what they have
  double share = 0;                   // of the network's values that were loaded
};

// Copies what has the same name and shape, and leaves the rest as it is. Throws failed when nothing fits.
LoadReport load_partial(torch::nn::Module& network, const NamedTensors& state, const std::string& source);

// "12 of 14 tensors (98.2 % of the values); missing: …; of another shape: …", with all names.
std::string describe(const LoadReport& report);

// Lays the parameters and buffers of four dimensions out as channels-last, in which convolutions take their input and
// weights without turning them around. Names, shapes and values stay; the tensors get other storage.
void to_channels_last(torch::nn::Module& network);

// Throws failed naming the first tensor with a value that is not finite, and how many there are.
void require_finite(const NamedTensors& tensors, const std::string& what);

}  // namespace reelgrad
