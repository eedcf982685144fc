#pragma once
#include <string>

#include "reelgrad/engine/engine.h"

namespace reelgrad {

// Throws; engine.cpp translates. See Engine::try_card.
TrialFigures try_card(const std::string& uuid);

}  // namespace reelgrad
