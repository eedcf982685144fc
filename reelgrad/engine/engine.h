// The seam: what the command line and the plugin know of the engine (libreelgrad.so), free of torch and CUDA. The
// engine is opened at run time, never linked; errors cross it as a Status, progress as an Observer.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
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
  // In adversarial training: the discriminator's logits of real and of made pictures. NaN: none, or no record yet.
  double discriminator_real = std::numeric_limits<double>::quiet_NaN();
  double discriminator_fake = std::numeric_limits<double>::quiet_NaN();
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
  std::optional<double> best_score;  // by best_measure(), distances negative; nullopt: never validated
  std::int64_t best_step = 0;
  std::optional<double> replay_seconds;  // a step's graph alone, where that was asked for and steps are captured
};

struct ClipArgument {
  std::filesystem::path path;  // video, .vpy or image folder
  std::map<std::string, std::string> args;
};

// Of RestoreRequest::overlap_px, in place of pixels.
inline constexpr int kMeasuredOverlap = -1;  // the smallest that keeps tiles within half an 8-bit code of the whole
inline constexpr int kExactOverlap = -2;     // the network's receptive radius: tiles equal the whole
inline constexpr int kMostOverlap_px = 65536;
// "auto", "exact" or a number of pixels, as people write it.
std::optional<int> parse_overlap(std::string_view text);

enum class Dither { none, ordered };

struct RestoreRequest {
  std::filesystem::path model;  // .safetensors, .pth, .ckpt, TorchScript; checkpoint or run folder
  std::string device = "auto";
  std::string precision = "auto";
  int tile_px = 0;  // side of the input that one tile restores; 0: chosen
  int overlap_px = kMeasuredOverlap;
  int streams = 0;               // frames that a card works at together; 0: chosen
  std::int64_t vram_mb = 0;      // of the card, for all that the session allocates; 0: what is free
  double strength = 1;           // 0: the input (enlarged by bicubic), 1: what the network makes of it
  bool ensemble = false;         // the mean over the picture's 8 flips and turns
  std::optional<double> sigma;   // of networks that take a noise level: standard deviation in 8-bit codes; none: theirs
  Dither dither = Dither::none;  // of outputs of 8 to 16 bits
  ColorOverrides overrides;
};

// What a session is to restore, known before the first frame.
struct RestoreFormat {
  VideoFormat input;
  int width = 0, height = 0;  // of the input
  VideoFormat output;         // its size is the input's times the scale
};

// A picture of a clip. Where two calls of a session have the same number, the picture is the same: the session keeps
// what it made of it for a while. A clip's session is asked for no other clip.
struct NumberedFrame {
  FrameView view;
  std::int64_t number = 0;
};

struct RestoreJob {
  std::vector<NumberedFrame> window;  // window() of them, in the order of time
  std::optional<FrameView> sigma;     // of networks that take one: a gray picture of the input's size, whose full-range
                                      // values are standard deviations in place of the request's
  std::string clip;                   // for messages
  std::function<bool()> stop_requested;  // polled before every tile, by this thread: true ends the call (interrupted)
};

// A network ready to restore pictures. Thread-safe: calls of streams() threads run side by side.
class RestorerSession {
 public:
  virtual ~RestorerSession() = default;
  virtual int scale() const = 0;
  // Frames that restore() wants. Of a network that restores one frame, the middle one; else see outputs().
  virtual int window() const = 0;
  // Pictures that one call gives: 1, or, of a recurrent network, all of its window.
  virtual int outputs() const = 0;
  virtual int streams() const = 0;
  virtual bool takes_sigma() const = 0;
  // The card that restores, as the place that frames come to (Clip::on_gpu, of a clip that was opened for its card()):
  // restore() takes their views. The session's; nullptr on the CPU. Its readers throw std::exception.
  virtual const GpuFrameTarget* frame_target() const = 0;
  // Throwless, as are the others. Before the first restore(): whatever can be known before a frame is refused here, and
  // tiles, overlap and streams are settled.
  virtual Status prepare(const RestoreFormat& format) = 0;
  // Fills outputs() pictures of the prepared format. `color`: what they hold, fully decided; the same for all of them.
  virtual Status restore(const RestoreJob& job, const std::vector<MutableFrameView>& outs, ColorProps& color) = 0;
  // What restore() will say that such a frame's pictures hold, in the format `output`: for a file's tags, before them.
  virtual Status output_color(const FrameView& input, const std::string& clip, const VideoFormat& output,
                              ColorProps& color) = 0;
  // `from`, of one plane and any format, at the size and in the format of `out`, by bicubic: a clip's alpha.
  virtual Status enlarge(const FrameView& from, const MutableFrameView& out) = 0;
  virtual std::string describe() const = 0;
  // What the values of a frame depend on beside the request: "fp16, cuda".
  virtual std::string arithmetic() const = 0;
};

// Compares pictures on a card or the CPU. Thread-safe.
class MeterSession {
 public:
  virtual ~MeterSession() = default;
  // Pictures of one size, each of any format; scores as `validate` gives them. Throwless.
  virtual Status compare(const FrameView& a, const FrameView& b, QualityNumbers& result) = 0;
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

// A network with weights as they start, on random pictures.
struct TimingRequest {
  std::string arch;
  int scale = 2;
  std::map<std::string, std::string> options;
  std::string device = "auto";
  bool quick = false;             // less exact
  bool training = true;           // else the picture alone is timed
  int width = 0, height = 0;      // of the picture; 0: chosen
  std::filesystem::path weights;  // a .pth that is to hold the weights, for another program to time; empty: none
};

// What was timed, by what the device can do; sides are multiples of what the network takes.
struct TimingResult {
  int batch = 0, crop_px = 0;     // of a step of training
  int width = 0, height = 0;      // of a picture that is restored
  double least_seconds = 0;       // that each of the two was run for
  int channels = 0, window = 1;   // of an input; a network's noise level is one of its channels
  std::string device, precision;  // fp16 (training: autocast) or fp32
  double step_seconds = 0, picture_seconds = 0;
  bool step_captured = false, picture_captured = false;  // in a CUDA graph
};

// Convolutions with bias and PReLU, without loading; 0: it has no such column.
struct ConvTiming {
  std::string name;
  double ours_tflops = 0, torch_tflops = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual Status train(const TrainRequest& request, Observer& observer, TrainResult& result) = 0;
  virtual Status open_restorer(const RestoreRequest& request, std::unique_ptr<RestorerSession>& session) = 0;
  virtual Status open_meter(const std::string& device, std::unique_ptr<MeterSession>& meter) = 0;
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
  // Seconds of a training step and of a restored picture, with nothing loaded or saved; `arch` is one that has no file.
  virtual Status time_network(const TimingRequest& request, TimingResult& result) = 0;
  // The convolutions that networks are made of, and first the rate of a large matrix product; `device` is a CUDA card.
  virtual Status time_convolutions(const std::string& device, std::vector<ConvTiming>& timings) = 0;
};

inline constexpr int kEngineVersion = 12;  // of this header's layout

// Finds torch, checks its version, opens it and the engine, once a process. `sink` receives the engine's messages.
// Throws no_device when torch or the engine cannot be opened, naming both paths and the remedy. Thread-safe.
// The engine is never closed.
Engine& open_engine(log::Sink sink = {});

// --- Exported by libreelgrad.so ---
extern "C" REELGRAD_API Engine* reelgrad_engine(int version, const log::Sink* sink);

}  // namespace reelgrad
