#pragma once
#include <memory>

namespace reelgrad {

template <auto free_fn>
struct FreeWith {
  template <class T>
  void operator()(T* handle) const {
    free_fn(handle);
  }
};

// Owns a C handle: `using File = Handle<std::FILE, std::fclose>;`
template <class T, auto free_fn>
using Handle = std::unique_ptr<T, FreeWith<free_fn>>;

}  // namespace reelgrad
