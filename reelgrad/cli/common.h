// What several commands share: opening a clip with progress, options for restoring, tables of scores.
#pragma once
#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/base/console.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/window_reader.h"
#include "reelgrad/engine/engine.h"

namespace reelgrad::cli {

// What MODEL is, in every command's help.
inline constexpr const char* kModelHelp =
    "A .safetensors, .pth, .pt or .ckpt file (known by what is in it), a checkpoint or a run folder";

// `--arg name=value`, repeated.
void add_args_option(CLI::App& command, std::vector<std::string>& args);
// "NAME=VALUE"; `option` is what they were given to. Throws usage.
std::map<std::string, std::string> parse_pairs(const std::vector<std::string>& pairs, const char* option);
std::map<std::string, std::string> parse_args(const std::vector<std::string>& args);

// Opens CLIP of the command line. A missing or unreadable clip is ErrorKind::failed.
// With `card`, its frames are to come to that card where they can.
Script open_clip_argument(const ClipArgument& clip, const std::optional<CardId>& card = {});

// Throws usage where writing `output` would destroy the clip, or one image of a folder.
void refuse_output_over_input(const std::filesystem::path& output, const std::filesystem::path& clip);

// All of RestoreRequest but the model.
void add_restore_options(CLI::App& command, RestoreRequest& request);

// --window-ends and --no-scene-cuts.
void add_window_options(CLI::App& command, WindowOptions& windows);

// With "auto": says why, when the NVIDIA card of this machine will not be used.
void warn_of_left_out_card(const std::string& device);

// The engine, with its messages in our log; settings of the process are made before it opens.
Engine& engine(bool deterministic = false);

nlohmann::json to_json(const QualityNumbers& quality);

// Made empty; removed with all that is in it.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& purpose);  // stands in its name
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// `asked` (of --python), REELGRAD_PYTHON, or the interpreter of the environment that holds torch; empty: none.
std::string find_python(const std::string& asked = {});

// Lets Ctrl-C reach the engine and shows a long command's frames.
class FrameProgress : public Observer {
 public:
  explicit FrameProgress(std::string what) : what_(std::move(what)) {}
  bool stop_requested() override;
  void status(const std::string& text) override;
  void frames_done(std::int64_t done, std::int64_t total) override;

 private:
  std::string what_;
  console::Progress progress_;
};

}  // namespace reelgrad::cli
