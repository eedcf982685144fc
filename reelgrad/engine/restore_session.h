#pragma once
#include <memory>

#include "reelgrad/engine/engine.h"

namespace reelgrad {

// All throw; engine.cpp translates.
std::unique_ptr<RestorerSession> open_restore_session(const RestoreRequest& request);
void validate_session(const ValidateRequest& request, Observer& observer, ValidateResult& result);
void preview_session(const PreviewRequest& request, Observer& observer);

}  // namespace reelgrad
