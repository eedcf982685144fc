#include "reelgrad/base/signals.h"

#include <unistd.h>
#include <csignal>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

volatile std::sig_atomic_t stop_signals = 0;

void on_stop_signal(int) {
  if (stop_signals) ::_exit(static_cast<int>(ErrorKind::interrupted));
  stop_signals = 1;
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  std::signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored: then no child's exit code would reach us
}

bool stop_requested() {
  return stop_signals != 0;
}

}  // namespace reelgrad
