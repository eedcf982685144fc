// Video in: VapourSynth embedded. Scripts, video files and image folders all become clips of constant format.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/clip/video_format.h"

namespace reelgrad {

struct ClipInfo {
  VideoFormat format;
  int width = 0, height = 0;
  std::int64_t frames = 0;
  Rational fps;  // 0/1: variable
};

// One output of a script. Copies share it; it keeps its script alive. Thread-safe.
class Clip {
 public:
  struct Impl;
  Clip() = default;
  explicit Clip(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }

  const ClipInfo& info() const;
  const std::string& name() const;  // "sr2x.vpy, output 1", for messages
  const FramePath& frame_path() const;
  std::string describe_frame_path() const;  // "sr2x.vpy, output 1: frames come on the card (…)", for a person

  // Waits for one frame. The error of a failing frame carries the clip's name, the number asked for and the filter's
  // text.
  Frame frame(std::int64_t n) const;

  // The same clip with its frames read on the target's card; itself, with the reason in its frame_path(), when they
  // cannot be. Tries one frame. The target may go at once.
  Clip on_gpu(const GpuFrameTarget& target) const;

  // VapourSynth's resize.Bicubic with its defaults, the baseline that networks are compared with.
  Clip bicubic(int width, int height) const;

  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

struct OpenOptions {
  std::map<std::string, std::string> args;  // variables set in a .vpy
  // Called while a video file is indexed the first time, and while the headers of images are read, with a line of text
  // for a person.
  std::function<void(const std::string&)> on_progress;
  int threads = 0;               // of VapourSynth's core; 0: all cores
  std::int64_t cache_bytes = 0;  // VapourSynth's frame cache limit; 0: its default
  // The card that frames are to come to (Clip::on_gpu): video files are decoded on it where it can, and outputs of
  // scripts that are in its memory stay there. All else comes through host memory, and Clip::frame_path() says why.
  std::optional<CardId> card;
};

// An evaluated .vpy, or a video file or folder of images wrapped as one. Destroy after nothing else: clips and frames
// keep what they need alive.
class Script {
 public:
  // Throws: usage when `path` does not exist, when the script raises (file, line and Python's message), or when an
  // output has a variable format or size; failed when VapourSynth cannot be found or the file cannot be read as video.
  static Script open(const std::filesystem::path& path, const OpenOptions& options = {});

  const std::filesystem::path& path() const;
  bool is_script() const;  // a .vpy rather than a video file or folder
  std::vector<int> outputs() const;
  std::optional<Clip> output(int index) const;

 private:
  struct Impl;
  explicit Script(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Script::open for a path that a command names rather than a configuration: whatever is wrong is ErrorKind::failed.
Script open_named_clip(const std::filesystem::path& path, const OpenOptions& options = {});

// The two sides of a training script: output 0 the target, output 1 the input.
struct ClipPair {
  Clip target, input;
  int scale = 1;

  ClipPair on_gpu(const GpuFrameTarget& card) const;  // Clip::on_gpu of both
};

// Checks what design.md asks of a training script: both outputs there, equal length, target = scale × input. Throws
// usage naming the node, both values and the line to write.
ClipPair training_pair(const Script& script, int scale);

// The clip that `apply` and `preview` restore: a video's only clip; a script's output 1 when it is a training script
// (outputs 0 and 1), else its output 0.
Clip input_clip(const Script& script);

// What is installed, for doctor and devices: empty strings where not found.
struct VapourSynthVersions {
  std::string core;                         // "R81"
  std::string api;                          // "4.3"
  std::string vsscript;                     // path of libvsscript.so
  std::string python;                       // the interpreter it uses
  std::vector<std::string> plugins;         // namespaces of all
  std::vector<std::string> source_plugins;  // "bs", "lsmas", "ffms2", "imwri"
  std::string error;                        // why it cannot be used, or empty
};
VapourSynthVersions vapoursynth_versions();

}  // namespace reelgrad
