#include "reelgrad/engine/guarded.h"

#include <c10/util/Exception.h>

#include <new>
#include <string_view>

#include "reelgrad/base/error.h"

namespace reelgrad {

Status status_of(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {false, error.kind(), error.what()};
  } catch (const c10::OutOfMemoryError& error) {
    return {false, ErrorKind::out_of_memory, error.what_without_backtrace()};
  } catch (const c10::Error& error) {
    const std::string_view text = error.what_without_backtrace();
    // The CPU's allocator has no exception type of its own.
    const bool no_memory = text.find("DefaultCPUAllocator: ") != std::string_view::npos;
    return {false, no_memory ? ErrorKind::out_of_memory : ErrorKind::failed, std::string(text)};
  } catch (const std::bad_alloc&) {
    return {false, ErrorKind::out_of_memory, "the computer's memory is used up"};
  } catch (const std::exception& error) {
    return {false, ErrorKind::failed, error.what()};
  } catch (...) {
    return {false, ErrorKind::failed, "an unknown error"};
  }
}

}  // namespace reelgrad
