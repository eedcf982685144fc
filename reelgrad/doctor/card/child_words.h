// What is said of a child process that did not end well.
#pragma once
#include <string>
#include <string_view>

namespace reelgrad {

// Of what it printed, without the line's end; empty when it printed nothing.
std::string last_line(std::string_view text);

// "killed by signal 11 (SIGSEGV)".
std::string signal_text(int signal);

}  // namespace reelgrad
