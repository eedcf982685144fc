// What the files of archs/ are made of. archs/NAME.cpp defines make_NAME and detect_NAME and keeps all else in
// namespace NAME; its options stand in config/architectures.cpp under the same name. That is all: the table of
// architectures is made from the folder's files.
#pragma once
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/conv_act.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/nn/state_shapes.h"

namespace reelgrad {

// An option's value; defaults are filled in and everything is checked before make_NAME is called.
int int_option(const NetworkSpec& spec, const std::string& name);
std::vector<int> ints_option(const NetworkSpec& spec, const std::string& name);
bool bool_option(const NetworkSpec& spec, const std::string& name);
const std::string& text_option(const NetworkSpec& spec, const std::string& name);

// Throws usage unless data.window is 1, or is `window`.
void require_single_frame(const NetworkSpec& spec);
void require_window(const NetworkSpec& spec, int window);

// The colour of a network with this many colour channels: 1 gray, 3 rgb, as everybody trains; else nullopt.
std::optional<NetworkColor> color_of_channels(std::int64_t channels);

// What a denoiser's first layer takes, a picture with a noise level beside it or without, and its last one gives; a
// layer that is missing has 0 channels.
struct NoiseChannels {
  NetworkColor color;
  std::string noise_map;  // the option of that name; empty: not told
};
NoiseChannels noise_channels(std::int64_t in, std::int64_t out);

// The scale of a pixel shuffle from `channels` to `out` channels, from 1 to 8; nullopt when there is none.
std::optional<int> pixel_shuffle_scale(std::int64_t channels, std::int64_t out);

// A convolution that keeps height and width: an odd kernel, and zeros around the picture.
torch::nn::Conv2d same_conv(int in, int out, int kernel = 3, bool bias = true);

// A 3×3 one of them with what follows it.
torch::Tensor conv3x3_act(const torch::Tensor& input, const torch::nn::Conv2d& conv, Activation activation);
torch::Tensor conv3x3_add(const torch::Tensor& input, const torch::nn::Conv2d& conv, const torch::Tensor& residual,
                          double factor = 1);

// A 1×1 one of them.
torch::Tensor conv1x1(const torch::Tensor& input, const torch::nn::Conv2d& conv);

// [1, 3, 1, 1], the mean colour of DIV2K, which several networks take from their input; of `like`'s type and device.
torch::Tensor mean_colour(const torch::Tensor& like);

// Registers `module` under a key with dots, as "model.1.sub.0"; modules that are missing on the way are made.
void register_at(torch::nn::Module& root, const std::string& key, const std::shared_ptr<torch::nn::Module>& module);

// What a network whose forward() is its segments gives.
torch::Tensor run_segments(const std::vector<NetworkSegment>& segments, const torch::Tensor& input);
// The first tensor that the last of the segments gives, of what the first of them takes.
torch::Tensor run_segments(const std::vector<NetworkSegment>& segments, std::vector<torch::Tensor> tensors);

// `subpixels` [N, C * r, H, W], r values for each of the input's C channels, plus `input` [N, C, H, W]: the input
// repeated to every pixel that a shuffle will make of one.
torch::Tensor add_repeated(const torch::Tensor& subpixels, const torch::Tensor& input);

// `input` with a channel behind its `channels` that says sigma / 255 everywhere; as it is where it has one already.
torch::Tensor with_noise_map(const torch::Tensor& input, int channels, int sigma);

// Every convolution starts from an orthogonal matrix times `gain`, and with biases of 0.
void init_orthogonal(torch::nn::Module& network, double gain);

}  // namespace reelgrad
