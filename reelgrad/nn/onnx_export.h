// A network as an ONNX model.
#pragma once
#include <optional>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/onnx_graph.h"
#include "reelgrad/nn/onnx_model.h"

namespace reelgrad {

struct OnnxOptions {
  int opset = onnx::kOldestOpset;  // to kNewestOpset
  bool half = false;  // weights, input, output and all between them, but for what the network has in float32
  std::optional<InputSize> size;  // of the input, the only one that the file then takes; nullopt: any
};

// What a network of this model takes and gives in ONNX: "input" [1, window * channels, H, W], the frames one after the
// other, and "output" [1, channels, H * scale, W * scale], both in [0, 1].
torch::Tensor run_as_onnx(Network& network, const torch::Tensor& input);

// The model's network is brought to float16 with `half`, and to evaluation. Initializers have the names of the
// state_dict; metadata says what the model is. Throws failed, naming the operation, for what ONNX or a file for any
// size cannot have; usage for a size that the network does not take.
onnx::Model to_onnx(const Model& model, const OnnxOptions& options);

}  // namespace reelgrad
