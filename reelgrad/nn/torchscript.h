// Networks of the user's own in TorchScript: arch = "torchscript".
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/nn/script_function.h"

namespace reelgrad {

// A scripted module as a network. Its parameters and buffers are ours under the names that they have in the script, on
// the same storage, so that training, to(), load_strict() and state_dict() reach them; those that need no gradient
// count as buffers. A tensor that the script holds under several names has the first.
class TorchScriptNetwork : public Network {
 public:
  // `what` names the network in messages. Throws usage for a module that could not be trained or moved to another
  // device.
  TorchScriptNetwork(torch::jit::Module module, NetworkInfo info, const std::string& what);

  torch::Tensor forward(torch::Tensor input) override;
  NetworkInfo info() const override { return info_; }
  std::vector<NetworkSegment> segments() override;
  void train(bool on = true) override;

  void set_info(const NetworkInfo& info) { info_ = info; }

 private:
  torch::jit::Module module_;
  NetworkInfo info_;
  ScriptFunction forward_;
  std::vector<ScriptFunction> parts_;
};

// The spec of a script that comes alone, without what a run knows of it: the frames that it says it takes in `self.window`
// (else one), and the colour and scale that it takes and gives. A script may also say `self.all_frames = True`: that it
// restores all of its window, and `self.fixed_px = 256`: that it takes squares of this side and nothing else. Throws usage, as for a network that could not be trained.
NetworkSpec torchscript_spec(const std::string& file);

// Row of the architecture table: options file, size_multiple and receptive_radius_px, the latter two measured where
// they are not given. The weights are the file's own. Throws usage.
std::shared_ptr<Network> make_torchscript(const NetworkSpec& spec);

}  // namespace reelgrad
