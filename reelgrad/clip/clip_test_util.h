// What the tests of this folder share: temporary folders, scripts written there, and Python and ffprobe as references.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/planes.h"

namespace reelgrad::test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name = "clip") {
    path_ = fs::temp_directory_path() / ("reelgrad-" + name + "-" + std::to_string(std::random_device{}()));
    fs::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }
  // A script with the usual first lines.
  fs::path script(const std::string& name, const std::string& body) const {
    return write(name, "import vapoursynth as vs\ncore = vs.core\n" + body);
  }

 private:
  fs::path path_;
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

// Standard output of a program that must succeed.
inline std::string output_of(const std::vector<std::string>& argv) {
  const ProcessResult result = run_process(argv, 60s);
  EXPECT_EQ(result.exit_code, 0) << argv[0] << ": " << result.err;
  return result.out;
}

inline std::string python(const fs::path& script, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> argv{REELGRAD_TEST_PYTHON, script.string()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return output_of(argv);
}

// Values of entries such as "stream=width,pix_fmt", one a line.
inline std::vector<std::string> ffprobe(const fs::path& file, const std::string& entries,
                                        const std::string& stream = "v:0") {
  std::istringstream out(output_of({"ffprobe", "-v", "error", "-select_streams", stream, "-show_entries", entries,
                                    "-of", "default=noprint_wrappers=1:nokey=1", file.string()}));
  std::vector<std::string> lines;
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  return lines;
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
