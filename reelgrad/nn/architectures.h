// The table of architectures: how each is made from its options and recognised from its weights.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/nn/weights.h"

namespace reelgrad {

// All that is needed to build a network and to feed it; stored in a model file's metadata under "reelgrad" as JSON.
struct NetworkSpec {
  std::string arch = "compact";
  int scale = 2;
  int window = 1;
  NetworkColor color = NetworkColor::rgb;
  std::map<std::string, std::string> options;  // as in config/architectures.h; missing ones have their defaults
};

struct Architecture {
  std::string_view name;  // the same as in config/architectures.h
  std::shared_ptr<Network> (*make)(const NetworkSpec& spec);
  // The spec when these keys and shapes are this architecture's. One input channel means gray; three mean rgb, as
  // everybody trains.
  std::optional<NetworkSpec> (*detect)(const NamedTensors& state);
};

std::span<const Architecture> architecture_table();

NetworkSpec network_spec(const Config& config);

// Freshly initialised as PyTorch's modules are, from the default CPU generator. Throws usage for an unknown name.
std::shared_ptr<Network> make_network(const NetworkSpec& spec);

struct Model {
  std::shared_ptr<Network> network;  // on the CPU, float32, eval mode
  NetworkSpec spec;
  std::map<std::string, std::string> metadata;
};

// Reads a .safetensors file of any origin: the spec from our metadata, else detected from its keys. Throws failed.
Model load_model(const std::filesystem::path& file);

std::map<std::string, std::string> model_metadata(const NetworkSpec& spec);

}  // namespace reelgrad
