#pragma once
#include <string_view>

namespace reelgrad::cli {

// The text of a file of examples/ ("sr2x.vpy") or of those in Python that are run ("train_loop.py"), carried in the
// binary; empty when there is none.
std::string_view example(std::string_view name);

}  // namespace reelgrad::cli
