// Networks that tell real pictures from made ones, for adversarial training.
#pragma once
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/nn/network.h"
#include "reelgrad/nn/spectral_conv.h"
#include "reelgrad/nn/state_shapes.h"

namespace reelgrad {

// One forward pass, cut for gradient checkpointing: the segments, run one after another on {x}, give the logits. The
// weights that spectral norm made for this pass are held by it, so that a segment which is run again has the same ones.
struct DiscriminatorPass {
  std::vector<NetworkSegment> segments;
  std::vector<torch::Tensor> weights;  // all that they use, those made ones in place of what they were made of
};

class Discriminator : public torch::nn::Module {
 public:
  // [N, C, H, W] (of a window, its frames' channels one after the other) -> logits, a tensor a scale, the finest first:
  // above 0 is real. Each call in training mode is one power iteration of every spectral norm and one update of running
  // statistics, as in PyTorch, with or without gradients.
  std::vector<torch::Tensor> forward(const torch::Tensor& x);

  // What forward() runs; it has done the power iteration.
  virtual DiscriminatorPass pass() = 0;

  // Height and width must be multiples of it.
  virtual int size_multiple() const = 0;
  virtual int smallest_px() const = 0;
  virtual int fixed_px() const { return 0; }  // the only height and width that it takes; 0: any
};

struct DiscriminatorOptions {
  std::string net = "unet_sn";      // unet_sn | patch_vgg | patchgan
  int channels = 3;                 // of x: colours times frames
  int features = 64;                // of the first layer
  int scales = 1;                   // as many discriminators, each on pictures half as large as the one before
  int size_px = 0;                  // height and width of x; 0: not known, and not allowed for patch_vgg
  int layers = 3;                   // patchgan: those that halve
  std::string norm = "batch";       // patchgan: batch | spectral | none
  bool skips = true;                // unet_sn: from the way down to the way up
  bool second_derivatives = false;  // has them, for the R1 penalty: by torch's operations alone
  bool operator==(const DiscriminatorOptions&) const = default;
};

// The options of a file of weights, which load strictly with them; what its keys and shapes do not tell is as above:
// `skips`, and `size_px` but for patch_vgg. nullopt: it is no discriminator.
std::optional<DiscriminatorOptions> recognise_discriminator(const NamedTensors& state);

// "a discriminator, unet_sn with features = 64, for pictures of 3 channels".
std::string describe(const DiscriminatorOptions& options);

// Freshly initialised as PyTorch's modules are after torch.manual_seed(seed); the default generator is left as it was.
// Throws usage for an unknown name, and for pictures that the discriminator does not take.
std::shared_ptr<Discriminator> make_discriminator(const DiscriminatorOptions& options, std::uint64_t seed);

// For the files of discriminators/: a layer's weights, put into the pass.
torch::Tensor add_weight(DiscriminatorPass& pass, SpectralConv2d& conv);  // the weight for SpectralConv2d::forward
void add_weights(DiscriminatorPass& pass, const torch::nn::Module& layer);

// A factory for each, in discriminators/NAME.cpp, and what keys and shapes tell of its options, which may be wrong;
// nullopt: nothing of it is there.
std::shared_ptr<Discriminator> make_unet_sn(const DiscriminatorOptions& options);
std::shared_ptr<Discriminator> make_patch_vgg(const DiscriminatorOptions& options);
std::shared_ptr<Discriminator> make_patchgan(const DiscriminatorOptions& options);
std::optional<DiscriminatorOptions> detect_unet_sn(const StateShapes& shapes);
std::optional<DiscriminatorOptions> detect_patch_vgg(const StateShapes& shapes);
std::optional<DiscriminatorOptions> detect_patchgan(const StateShapes& shapes);

}  // namespace reelgrad
