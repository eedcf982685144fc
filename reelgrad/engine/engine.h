// The seam: what the command line and the plugin know of the engine (libreelgrad.so), free of torch and CUDA. The
// engine is opened at run time, never linked; errors cross it as a Status, progress as an Observer.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reelgrad/base/api.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/config/config.h"
#include "reelgrad/config/run_mode.h"

namespace reelgrad {

// Result of a call across the seam. Errors are values here, so that no exception has to cross.
struct Status {
  bool ok = true;
  ErrorKind kind = ErrorKind::failed;
  std::string message;

  void raise() const {
    if (!ok) throw Error(kind, message);
  }
};

struct TrainProgress {
  std::int64_t step = 0, steps = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> losses;  // the weighted terms where there are several
  double learning_rate = 0;
  double steps_per_second = 0;
  double data_wait_share = 0;
  std::int64_t memory_mb = 0;  // on the card; 0 on the CPU
};

struct QualityNumbers {
  double psnr_rgb = 0, psnr_y = 0, ssim_rgb = 0, ssim_y = 0;
};

// Implemented by the caller. Called from the engine's thread that runs the request.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual bool stop_requested() { return false; }
  virtual void status(const std::string&) {}  // a passing state: "indexing clip.mkv: 40%"
  virtual void train_progress(const TrainProgress&) {}
  virtual void frames_done(std::int64_t /*done*/, std::int64_t /*total*/) {}
};

struct TrainRequest {
  Config config;
  RunMode mode = RunMode::start;
  std::optional<std::int64_t> stop_at;
  bool time_replay = false;  // after the run, for a benchmark
};

struct TrainResult {
  bool interrupted = false;
  bool stopped_early = false;  // at stop_at
  std::int64_t step = 0;
  std::filesystem::path run_folder;
  double best_psnr_rgb = 0;  // 0: never validated
  std::int64_t best_step = 0;
  std::optional<double> replay_seconds;  // a step's graph alone, where that was asked for and steps are captured
};

struct ClipArgument {
  std::filesystem::path path;  // video, .vpy or image folder
  std::map<std::string, std::string> args;
};

struct RestoreRequest {
  std::filesystem::path model;  // .safetensors, .pth, .ckpt, TorchScript; checkpoint or run folder
  std::string device = "auto";
  std::string precision = "auto";
  int tile_px = 0;
  int overlap_px = -1;
  ColorOverrides overrides;
};

// A network ready to restore pictures. Thread-safe; calls are serialised inside.
class RestorerSession {
 public:
  virtual ~RestorerSession() = default;
  virtual int scale() const = 0;
  virtual int window() const = 0;  // frames that restore() wants, the middle one is restored
  // The card that restores, as the place that frames come to (Clip::on_gpu, of a clip that was opened for its card()):
  // restore() takes their views. The session's; nullptr on the CPU. Its readers throw std::exception.
  virtual const GpuFrameTarget* frame_target() const = 0;
  // Throwless; see Restorer::restore.
  virtual Status restore(const std::vector<FrameView>& window, const std::string& clip_name, std::int64_t frame,
                         const MutableFrameView& out) = 0;
  virtual std::string describe() const = 0;
};

struct ValidateRequest {
  RestoreRequest restore;
  ClipArgument clip;             // a training script, or a folder of targets
  std::string frames;            // range of frames or images, empty: all
  std::filesystem::path inputs;  // the folder of the targets' inputs; empty: clip is a script
};

struct ValidatedClip {
  std::string name;
  std::int64_t frames = 0;
  QualityNumbers ours, bicubic;
};

struct ValidateResult {
  QualityNumbers ours, bicubic;
  std::vector<ValidatedClip> clips;
};

struct PreviewRequest {
  RestoreRequest restore;
  ClipArgument clip;
  std::int64_t frame = 0;
  std::filesystem::path
      output;  // .png; input | bicubic | ours | target for a training script, else input | bicubic | ours
};

struct ExportRequest {
  std::filesystem::path model;   // as in RestoreRequest
  std::filesystem::path output;  // .safetensors, .pth or .onnx
  bool half = false;             // floating weights as float16; .onnx: all is reckoned in it
  // Of .onnx:
  int opset = 0;              // 17 to 20; 0: the oldest, which most programs read
  int height = 0, width = 0;  // of the one picture size that it takes; 0: any
  // A folder that is to hold what a check needs: pictures, and what the network in float32 makes of them. Empty: none.
  std::filesystem::path check_folder;
};

// `inspect` of a model, checkpoint or run folder: JSON with at least "kind".
struct InspectResult {
  std::string json;
};

// 0: not measured.
struct TrialFigures {
  double half_matmul_tflops = 0, half_convolution_tflops = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual Status train(const TrainRequest& request, Observer& observer, TrainResult& result) = 0;
  virtual Status open_restorer(const RestoreRequest& request, std::unique_ptr<RestorerSession>& session) = 0;
  virtual Status validate(const ValidateRequest& request, Observer& observer, ValidateResult& result) = 0;
  virtual Status preview(const PreviewRequest& request, Observer& observer) = 0;
  virtual Status inspect_model(const std::filesystem::path& model, InspectResult& result) = 0;
  // Of an architecture with these options and "scale": what it costs and how far it looks. kind "architecture".
  virtual Status inspect_architecture(const std::string& name, const std::map<std::string, std::string>& options,
                                      InspectResult& result) = 0;
  virtual Status export_model(const ExportRequest& request) = 0;
  // The doctor's trial: a half-precision matrix product, an NHWC convolution through cuDNN and a step of training on
  // the card `uuid`, results checked. Fails when one of them cannot be done or is wrong. A few seconds, 200 MB of the
  // card.
  virtual Status try_card(const std::string& uuid, TrialFigures& figures) = 0;
};

inline constexpr int kEngineVersion = 7;  // of this header's layout

// Finds torch, checks its version, opens it and the engine, once a process. `sink` receives the engine's messages.
// Throws no_device when torch or the engine cannot be opened, naming both paths and the remedy. Thread-safe.
// The engine is never closed.
Engine& open_engine(log::Sink sink = {});

// --- Exported by libreelgrad.so ---
extern "C" REELGRAD_API Engine* reelgrad_engine(int version, const log::Sink* sink);

}  // namespace reelgrad
