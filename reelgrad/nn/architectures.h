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
  std::map<std::string, std::string> args;     // of a module
};

class StateShapes;

struct Architecture {
  std::string_view name;  // the same as in config/architectures.h
  std::shared_ptr<Network> (*make)(const NetworkSpec& spec);
  // What these keys and shapes tell of the spec, whole or with some of them missing: one input channel means gray,
  // three mean rgb, as everybody trains. What is not told is 0, empty or left out. nullopt: nothing of it is there.
  std::optional<NetworkSpec> (*detect)(const StateShapes& shapes);
  // Where the network is in a file of the user's: the option that names it, and the name of the copy that a run keeps.
  std::string_view file_option = {}, kept_as = {};
};

std::span<const Architecture> architecture_table();

NetworkSpec network_spec(const Config& config);

// Freshly initialised as PyTorch's modules are, from the default CPU generator (a user's network: as it comes). Throws
// usage for an unknown name, and for a user's network that does not fit.
std::shared_ptr<Network> make_network(const NetworkSpec& spec);

// For weights that are all overwritten: they and the buffers hold anything. A user's network is made as above.
std::shared_ptr<Network> make_blank_network(const NetworkSpec& spec);

// The spec with defaults in place of what its architecture does not offer.
NetworkSpec with_what_is_offered(NetworkSpec spec);

// The spec with what was measured on the network, so that it need not be measured again.
NetworkSpec measured_spec(NetworkSpec spec, const Network& network);

// The user's file that the network is in; empty where the architecture is one of ours.
std::filesystem::path network_file(const NetworkSpec& spec);

// The spec with that file taken from `folder`, under the name of the copy that a run keeps there.
NetworkSpec with_file_in(const std::filesystem::path& folder, NetworkSpec spec);

struct Model {
  std::shared_ptr<Network> network;  // on the CPU, float32, eval mode
  NetworkSpec spec;
  std::map<std::string, std::string> metadata;
};

// Reads a file of weights (weights_file.h) of any origin: the spec from our metadata, else detected from its keys; or a
// TorchScript file, which is a network itself. What was chosen in the file is logged. A user's network is looked for as
// the file's name with .pt or .so, as the copy's name beside the file, and in the run folder that the file's checkpoint
// is in; it must be the one that was trained. Throws failed.
Model load_model(const std::filesystem::path& file);

std::map<std::string, std::string> model_metadata(const NetworkSpec& spec);

}  // namespace reelgrad
