// What the files of archs/ are made of. archs/NAME.cpp defines make_NAME and detect_NAME and keeps all else in
// namespace NAME; its options stand in config/architectures.cpp under the same name. That is all: the table of
// architectures is made from the folder's files.
#pragma once
#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/nn/state_shapes.h"

namespace reelgrad {

// An option's value; defaults are filled in and everything is checked before make_NAME is called.
int int_option(const NetworkSpec& spec, const std::string& name);
bool bool_option(const NetworkSpec& spec, const std::string& name);
const std::string& text_option(const NetworkSpec& spec, const std::string& name);

// Throws usage unless data.window is 1, or is `window`.
void require_single_frame(const NetworkSpec& spec);
void require_window(const NetworkSpec& spec, int window);

// The colour of a network with this many colour channels: 1 gray, 3 rgb, as everybody trains; else nullopt.
std::optional<NetworkColor> color_of_channels(std::int64_t channels);

// The scale of a pixel shuffle from `channels` to `out` channels, from 1 to 8; nullopt when there is none.
std::optional<int> pixel_shuffle_scale(std::int64_t channels, std::int64_t out);

}  // namespace reelgrad
