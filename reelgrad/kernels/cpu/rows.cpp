#include "reelgrad/kernels/cpu/rows.h"

#include <vector>

namespace reelgrad::cpu {

Scratch::Scratch(int rows, int row_floats) {
  constexpr int kMargin = 16;
  thread_local std::vector<float> memory;
  stride_ = (static_cast<std::ptrdiff_t>(row_floats) + 2 * kMargin + 15) / 16 * 16;
  const auto needed = static_cast<std::size_t>(rows * stride_);
  if (memory.size() < needed) memory.resize(needed);
  rows_ = memory.data() + kMargin;
}

}  // namespace reelgrad::cpu
