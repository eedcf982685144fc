#pragma once
#include <filesystem>
#include <string>

#include "reelgrad/base/descriptor.h"

namespace reelgrad {

// Holds a file that only one process at a time can hold; the system lets go of it when the process ends, however it
// ends. The file itself stays behind, with the number of the process that held it last.
class LockFile {
 public:
  // Throws failed naming `what` and the process that holds it.
  LockFile(const std::filesystem::path& path, const std::string& what);

 private:
  Descriptor file_;
};

}  // namespace reelgrad
