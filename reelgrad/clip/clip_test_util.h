// What the tests of this folder share: scripts in temporary folders, and Python and ffprobe as references.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/planes.h"

namespace reelgrad::test {

namespace fs = std::filesystem;

class ScriptFolder : public TemporaryFolder {
 public:
  using TemporaryFolder::TemporaryFolder;

  // A script with the usual first lines.
  fs::path script(const std::string& name, const std::string& body) const {
    return write(name, "import vapoursynth as vs\ncore = vs.core\n" + body);
  }
};

inline std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline std::string packed(const FrameView& view) {
  std::vector<std::byte> bytes;
  pack_planes(view, {0, 1, 2}, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string python(const fs::path& script, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> argv{REELGRAD_TEST_PYTHON, script.string()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return output_of(argv);
}

// Values of entries such as "stream=width,pix_fmt", one a line.
inline std::vector<std::string> ffprobe(const fs::path& file, const std::string& entries,
                                        const std::string& stream = "v:0") {
  return lines_of(output_of({"ffprobe", "-v", "error", "-select_streams", stream, "-show_entries", entries, "-of",
                             "default=noprint_wrappers=1:nokey=1", file.string()}));
}

inline void ffmpeg(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ffmpeg", "-y", "-v", "error", "-nostdin"});
  output_of(arguments);
}

// The error of something that must throw one.
template <class F>
Error error_of(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorKind::failed, "");
}

inline Clip output(const fs::path& script, int index = 0, const OpenOptions& options = {}) {
  return Script::open(script, options).output(index).value();
}

}  // namespace reelgrad::test
