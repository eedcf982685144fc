// The one place where exceptions become a Status: nothing is thrown across the seam.
#pragma once
#include <exception>
#include <utility>

#include "reelgrad/engine/engine.h"

namespace reelgrad {

Status status_of(std::exception_ptr failure);

template <class Work>
Status guarded(Work&& work) {
  try {
    std::forward<Work>(work)();
    return {};
  } catch (...) {
    return status_of(std::current_exception());
  }
}

}  // namespace reelgrad
