#include "reelgrad/engine/guarded.h"

#include <c10/util/Exception.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/train/out_of_memory.h"

namespace reelgrad {

namespace {

std::string words_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace

Status status_of(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {false, error.kind(), error.what()};
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) return {false, ErrorKind::failed, words_of(error)};
    const bool of_a_card = is_out_of_memory(error, torch::kCUDA);
    return {false, ErrorKind::out_of_memory,
            (of_a_card ? "" : "the computer's memory is used up: ") + first_line(error)};
  } catch (...) {
    return {false, ErrorKind::failed, "an unknown error"};
  }
}

}  // namespace reelgrad
