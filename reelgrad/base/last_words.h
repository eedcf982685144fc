#pragma once

namespace reelgrad {

// For what ends the program from within, where nobody can catch it (std::terminate: VapourSynth's answer when it cannot
// have memory for a picture, or an exception of a library's thread). If memory is what is missing, the program says so
// and ends with that exit code; else it aborts as ever. Only the command line installs this.
void install_last_words();

}  // namespace reelgrad
