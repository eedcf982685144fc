#pragma once

namespace reelgrad {

// SIGINT and SIGTERM ask the running command to stop at the next safe place; a second one ends the process at once with
// exit code 130. Only the command line installs this.
void install_stop_signals();
bool stop_requested();

}  // namespace reelgrad
