// Weights that a file is about to overwrite need no values drawn for them, which takes longer than reading them.
#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace reelgrad {

// While it lives, uniform_() and normal_() do nothing on this thread: a network that is made then holds whatever lay in
// its memory. The generator stays where it was.
class WithoutInitialisation {
 public:
  WithoutInitialisation();

 private:
  c10::impl::IncludeDispatchKeyGuard skipping_;
};

// For starts that draw numbers and reckon with them: whether one is there.
bool initialisation_is_skipped();

}  // namespace reelgrad
