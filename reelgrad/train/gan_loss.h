// What a generator and a discriminator make small, of a discriminator's logits.
#pragma once
#include <torch/types.h>

#include <string>
#include <vector>

namespace reelgrad {

// vanilla: binary cross entropy (Goodfellow et al., "Generative Adversarial Nets", 2014); lsgan: squared distance from
// 1 and 0 (Mao et al., 2017); hinge (Lim and Ye, "Geometric GAN", 2017); ragan, ralsgan: vanilla and lsgan of how much
// more real one kind is than the other on average ("The relativistic discriminator", Jolicoeur-Martineau, 2018;
// ESRGAN).
enum class GanKind { vanilla, lsgan, hinge, ragan, ralsgan };

// Throws usage for a name that is none.
GanKind parse_gan_kind(const std::string& name);

// Tensors of logits as Discriminator::forward gives them, one a scale; each a mean over its values, and over the
// scales. Half types are computed in float32. Relativistic means are taken over the logits that are given: with
// micro-batches, over those of each.
class GanLoss {
 public:
  // `label_smoothing`: the discriminator's label of real pictures is 1 less this (one-sided: Salimans et al., "Improved
  // Techniques for Training GANs", 2016). Throws usage where it is given to hinge, which has no labels.
  explicit GanLoss(GanKind kind, double label_smoothing = 0);

  // Scalar. `real_logits` matter to relativistic kinds alone, for others they may be empty; they get no gradient.
  torch::Tensor generator_loss(const std::vector<torch::Tensor>& real_logits,
                               const std::vector<torch::Tensor>& fake_logits) const;

  // Scalar: the sum of the real and the fake part; of relativistic kinds half of it, as ESRGAN has it.
  torch::Tensor discriminator_loss(const std::vector<torch::Tensor>& real_logits,
                                   const std::vector<torch::Tensor>& fake_logits) const;

  // Its two parts, which can be made one after the other; not of relativistic kinds.
  torch::Tensor real_part(const std::vector<torch::Tensor>& real_logits) const;
  torch::Tensor fake_part(const std::vector<torch::Tensor>& fake_logits) const;

  bool is_relativistic() const { return kind_ == GanKind::ragan || kind_ == GanKind::ralsgan; }

 private:
  torch::Tensor generator_part(const torch::Tensor& real, const torch::Tensor& fake) const;
  torch::Tensor discriminator_part(const torch::Tensor& real, const torch::Tensor& fake) const;
  torch::Tensor real_part(const torch::Tensor& logits) const;
  torch::Tensor fake_part(const torch::Tensor& logits) const;
  torch::Tensor distance(const torch::Tensor& logits, double label) const;

  GanKind kind_;
  double real_label_;
};

// R1 ("Which Training Methods for GANs do actually Converge?", Mescheder et al., 2018): the squared norm of the
// gradient of D(real) by the picture, a mean over the pictures; its usual weight is gamma / 2. `real`: the leaf with
// requires_grad that the logits were made of, without checkpointing. Differentiable in the discriminator's parameters.
torch::Tensor r1_penalty(const std::vector<torch::Tensor>& real_logits, const torch::Tensor& real);

}  // namespace reelgrad
