#pragma once
#include <chrono>
#include <filesystem>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Somebody's Python and the PyTorch that `import torch` would take there, without importing anything: from pyvenv.cfg
// (venv, virtualenv, uv), conda's records and the folders' layout, else by asking the interpreter, started without its
// site module, for its folders (5 s at most). `python` is an interpreter, a link or shim of one, the folder of an
// environment, or a name on PATH. PYTHONPATH, the user's own site-packages and the folders and editable packages named
// in .pth files count as they do for Python. `error` says in words why there is no such Python or no PyTorch in it;
// then `torch.dir` is empty. Never throws.
PythonFacts read_python(const std::filesystem::path& python);

// Has that Python import torch and answer torch.cuda.is_available(), device_count() and get_device_name(0), in a child
// process that is ended after `limit`. `imported` is ok when the first two were answered; then `import_error` is what
// the third said where there is no name: PyTorch's own reason for "not available". What was answered before a crash or
// the limit is kept. Does nothing when `facts.path` is empty.
void ask_python(PythonFacts& facts, std::chrono::milliseconds limit);

}  // namespace reelgrad
