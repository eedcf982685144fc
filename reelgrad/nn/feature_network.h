// The frozen networks that losses look through: the convolutional part of torchvision's classifiers.
#pragma once
#include <torch/types.h>

#include <filesystem>
#include <vector>

#include "reelgrad/nn/network.h"
#include "reelgrad/nn/weights.h"

namespace reelgrad {

// "Very Deep Convolutional Networks for Large-Scale Image Recognition" (Simonyan and Zisserman, 2014); "One weird trick
// for parallelizing convolutional neural networks" (Krizhevsky, 2014).
enum class Backbone { vgg16, vgg19, alexnet };

struct FeatureNetworkOptions {
  Backbone backbone = Backbone::vgg19;
  std::vector<int> taps;    // layers whose outputs are wanted, by torchvision's numbers ("features.N"), rising
  bool l2_pooling = false;  // in place of the largest of each square: DISTS
};

// For one thread at a time.
class FeatureNetwork {
 public:
  // Reads "features.N.weight" and "features.N.bias" up to the last tap. Warns once where the file is not torchvision's
  // published one. Throws failed, naming the file and what it lacks.
  FeatureNetwork(const FeatureNetworkOptions& options, const std::filesystem::path& file);

  // Brings the weights to the device and type that segments() then expect; does nothing where they are already there.
  // Not to be called first while a CUDA graph is captured.
  void place(torch::Device device, torch::ScalarType type);

  // {x [N, 3, H, W], in place()'s type} -> the taps. One segment a convolution.
  std::vector<NetworkSegment> segments() const;

 private:
  struct Layer {
    enum class Kind { conv, relu, pool } kind;
    int in = 0, out = 0, kernel = 0, stride = 1, padding = 0;
  };
  static std::vector<Layer> layers_of(Backbone backbone);
  std::vector<torch::Tensor> run(int first, int end, const std::vector<torch::Tensor>& in) const;
  // `rectified`: with the ReLU that follows.
  torch::Tensor apply(int index, const torch::Tensor& x, bool rectified) const;
  bool is_tap(int index) const;

  FeatureNetworkOptions options_;
  std::vector<Layer> layers_;
  std::vector<torch::Tensor> read_, placed_;  // weight and bias of each convolution, as in the file and as used
};

}  // namespace reelgrad
