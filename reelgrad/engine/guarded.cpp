#include "reelgrad/engine/guarded.h"

#include <c10/util/Exception.h>

#include <new>

#include "reelgrad/base/error.h"
#include "reelgrad/train/out_of_memory.h"

namespace reelgrad {

namespace {

ErrorKind kind_of(const std::exception& error) {
  return is_out_of_memory(error) ? ErrorKind::out_of_memory : ErrorKind::failed;
}

}  // namespace

Status status_of(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {false, error.kind(), error.what()};
  } catch (const std::bad_alloc&) {
    return {false, ErrorKind::out_of_memory, "the computer's memory is used up"};
  } catch (const c10::Error& error) {
    return {false, kind_of(error), error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {false, kind_of(error), error.what()};
  } catch (...) {
    return {false, ErrorKind::failed, "an unknown error"};
  }
}

}  // namespace reelgrad
