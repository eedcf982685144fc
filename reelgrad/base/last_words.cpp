#include "reelgrad/base/last_words.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

// Less than this left counts as none: a picture that could not be had may have been large.
constexpr std::size_t kHardlyAny = std::size_t{1} << 30;

constexpr std::string_view kWords =
    "error: the computer's memory is used up, or a limit of it is reached (ulimit -v, a container's); what was saved "
    "before is untouched\n";

std::terminate_handler aborting = nullptr;

bool hardly_any_left() {
  void* const probe = std::malloc(kHardlyAny);
  std::free(probe);
  return probe == nullptr;
}

bool is_of_memory(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::system_error& error) {
    return error.code() == std::errc::resource_unavailable_try_again || error.code() == std::errc::not_enough_memory;
  } catch (...) {
    return false;
  }
}

void say_last_words() {
  const std::exception_ptr failure = std::current_exception();
  if (!(failure ? is_of_memory(failure) : hardly_any_left())) aborting();
  static_cast<void>(!::write(STDERR_FILENO, kWords.data(), kWords.size()));
  ::_exit(static_cast<int>(ErrorKind::out_of_memory));
}

}  // namespace

void install_last_words() {
  aborting = std::set_terminate(say_last_words);
}

}  // namespace reelgrad
