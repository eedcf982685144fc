// For tests: spandrel, the reader that the community's tools share, as the reference for an architecture.
#pragma once
#include <map>
#include <string>

#include "reelgrad/nn/architectures.h"

namespace reelgrad::test {

struct SpandrelCase {
  NetworkSpec spec;  // options that spandrel infers too; others have their defaults
  std::string id;    // spandrel's name of the architecture
  int batch = 2, height = 16, width = 12;
  double gradient_tolerance = 1e-4;  // of a tensor's norm
  int extra_channels = 0;            // of the input, beside the colour's: a noise level map
  bool renames = false;              // spandrel gives the weights other keys than the file's
  // Takes long: what weights of the reference's own give is left to other cases.
  bool large = false;
  bool drops_paths = false;                   // at random in training: gradients are compared with every path kept
  std::map<std::string, std::string> untold;  // options of training that no file tells, for the gradients
};

// A network of this spec with random weights, written without our metadata:
// - loads strictly in spandrel under `id`, and in ours with this spec;
// - gives in evaluation what spandrel's gives, within 1e-5 (of the largest value, if above 1), and in training the same
// gradients of every parameter;
// - has as many values and, on that picture, as many operations (PyTorch's own count); and spandrel's own
// state dict, with other random weights, loads in ours and gives its output.
// Where spandrel renames the weights, gradients are not compared.
void expect_agrees_with_spandrel(const SpandrelCase& wanted);

// The same with a module of PyTorch's in the place of spandrel, which has no networks of several frames. `script`, a
// file of archs/, defines network(state): a module for a state dict, and its scale; `id` is the script's name without
// "_reference.py".
void expect_agrees_with_reference(const SpandrelCase& wanted, const std::string& script);

}  // namespace reelgrad::test
