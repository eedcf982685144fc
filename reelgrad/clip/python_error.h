#pragma once
#include <string>
#include <string_view>

namespace reelgrad {

// A Python traceback in one line: "sr2x.vpy:5: RuntimeError: boom", with the innermost line of a person's own code and
// the last exception's message. Text without a traceback comes back trimmed. `script` is the file that was evaluated:
// an exception raised in a module it calls names both places.
std::string shorten_python_error(std::string_view text, std::string_view script);

// Whether such an error is Python's or NumPy's that memory ran out.
bool is_memory_error(std::string_view text);

}  // namespace reelgrad
