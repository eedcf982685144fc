// The doctor's word for commands that need a card.
#pragma once
#include <string>

#include "reelgrad/base/error.h"

namespace reelgrad {

// The error, and when it is about a card or PyTorch that is missing (no_device) the doctor's first finding with its
// fix, in the user's language. Asks children; about a second.
std::string explained(const Error& error);

// Why a command whose device is "auto" will not use the NVIDIA card that is in this machine; empty when it will, or
// when there is none.
std::string why_card_is_left_out();

}  // namespace reelgrad
