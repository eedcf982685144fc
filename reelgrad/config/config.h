// The training configuration: plain structs with their defaults. `fields()` in fields.h lists every key once; parsing,
// checking, printing and documentation are visitors of it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reelgrad {

struct RunConfig {
  std::string name;           // default: the config file's stem
  std::filesystem::path dir;  // default runs/<name>; relative to the working directory
  std::int64_t steps = 20'000;
  std::uint64_t seed = 1;
  std::string device = "auto";  // auto | cpu | cuda | cuda:N
  bool deterministic = false;
  std::int64_t log_every = 100;  // steps
  bool tensorboard = true;       // the same numbers as TensorBoard's events
  std::string graph = "auto";    // auto | off: whole steps as one CUDA graph
};

// One script of the data set; `data.script = "a.vpy"` is a list of one with the defaults.
struct ScriptConfig {
  std::filesystem::path path;               // absolute after loading (relative to the config file)
  double weight = 1;                        // its share of the samples is weight / sum of weights
  std::int64_t start = 0;                   // first frame used
  std::int64_t end = -1;                    // one past the last, -1: the clip's end
  std::map<std::string, std::string> args;  // variables set in the script
};

// Two folders of images with equal names; `data.pairs = { input = "LR", target = "HR" }` is a list of one.
struct PairsConfig {
  std::filesystem::path input, target;  // absolute after loading (relative to the config file)
  double weight = 1;                    // as a script's
};

// Overrides of missing or wrong frame properties: "auto" or a name ("709", "170m", "limited", "left", …).
struct ColorOverrides {
  std::string matrix_in = "auto";
  std::string range_in = "auto";
  std::string chromaloc_in = "auto";
};

struct DataConfig {
  std::vector<ScriptConfig> script;
  std::vector<PairsConfig> pairs;  // beside the scripts, or in their place
  int batch = 16;
  int crop_px = 64;                 // side of the input crop
  int window = 1;                   // frames the network sees
  int frame_step = 1;               // distance of neighbours in a window, frames
  std::string color = "rgb";        // rgb | gray | yuv444: what the network sees
  bool augment = true;              // flips and quarter turns
  int reuse = 16;                   // crops per decoded frame
  int segment_frames = 16;          // frames decoded in one go
  int pool_frames = 256;            // frames held ready to be cropped
  std::string scene_cuts = "auto";  // auto | props | off: where windows must not reach across
  bool skip_duplicates = true;      // leave out frames that repeat the one before exactly
  ColorOverrides overrides;
};

struct ModelConfig {
  std::string arch = "compact";
  int scale = 2;
  std::filesystem::path pretrained;            // start from this file; empty: random
  std::string pretrained_fit = "strict";       // strict | partial: what does not fit starts anew
  std::map<std::string, std::string> options;  // the architecture's own, as text; checked against architectures.h
  std::map<std::string, std::string> args;     // what a module is made with
};

// What a term of the loss weighs; 0: off.
struct LossWeight {
  double weight = 0;
  std::int64_t start = 0;  // steps done before the term counts
  std::int64_t ramp = 0;   // steps in which its weight then rises linearly

  LossWeight(double weight = 0) : weight(weight) {}
  bool on() const { return weight > 0; }
  bool scheduled() const { return start > 0 || ramp > 1; }
  bool operator==(const LossWeight&) const = default;
};

// Features of VGG19. Layers are named as in feature_files.h.
struct PerceptualConfig : LossWeight {
  using LossWeight::LossWeight;
  std::filesystem::path weights;  // torchvision's VGG19
  std::map<std::string, double> layers{
      {"conv1_2", 0.1}, {"conv2_2", 0.1}, {"conv3_4", 1}, {"conv4_4", 1}, {"conv5_4", 1}};
  std::string criterion = "l1";  // l1 | mse | gram
  bool operator==(const PerceptualConfig&) const = default;
};

struct LpipsConfig : LossWeight {
  using LossWeight::LossWeight;
  std::string net = "vgg";         // vgg | alex
  std::filesystem::path backbone;  // torchvision's VGG16 or AlexNet
  std::filesystem::path weights;   // empty: those of the installed package lpips
  bool operator==(const LpipsConfig&) const = default;
};

struct DistsConfig : LossWeight {
  using LossWeight::LossWeight;
  std::filesystem::path backbone;  // torchvision's VGG16
  std::filesystem::path weights;   // empty: those of the installed package DISTS-pytorch
  bool operator==(const DistsConfig&) const = default;
};

struct FocalFrequencyConfig : LossWeight {
  using LossWeight::LossWeight;
  double alpha = 1;  // the focus: power of a frequency's own distance in its weight
  bool operator==(const FocalFrequencyConfig&) const = default;
};

struct LdlConfig : LossWeight {
  using LossWeight::LossWeight;
  bool ema = true;  // not where the average's output is nearer; does nothing where no average is kept
  bool operator==(const LdlConfig&) const = default;
};

struct WaveletConfig : LossWeight {
  using LossWeight::LossWeight;
  std::string filter = "haar";            // haar | db2 | sym7
  int levels = 1;                         //
  double ll = 1, lh = 1, hl = 1, hh = 1;  // weights of the bands; ll of the last level
  bool operator==(const WaveletConfig&) const = default;
};

struct ColorLossConfig : LossWeight {
  using LossWeight::LossWeight;
  int block_px = 4;  // side of the squares that are averaged
  bool operator==(const ColorLossConfig&) const = default;
};

// The adversarial term: a discriminator learns beside the network what real pictures look like.
struct GanConfig : LossWeight {
  using LossWeight::LossWeight;
  std::string net = "unet_sn";   // unet_sn | patch_vgg | patchgan
  std::string kind = "vanilla";  // vanilla | lsgan | hinge | ragan | ralsgan
  double label_smoothing = 0;    // real pictures are labelled 1 less this
  bool operator==(const GanConfig&) const = default;
};

// The terms, which are added.
struct LossConfig {
  LossWeight l1, mse, charbonnier = 1, huber;
  LossWeight ssim, ms_ssim, fft, edge, temporal;
  LdlConfig ldl;
  PerceptualConfig perceptual;
  LpipsConfig lpips;
  DistsConfig dists;
  FocalFrequencyConfig focal_frequency;
  WaveletConfig wavelet;
  ColorLossConfig color;
  GanConfig gan;
  double charbonnier_eps = 1e-6;              // sqrt(d^2 + eps^2)
  double huber_delta = 1;                     // where the parabola turns into a line
  std::string edge_operator = "sobel";        // sobel | laplacian
  double luma_weight = 1, chroma_weight = 1;  // in l1, mse, charbonnier and huber of rgb and yuv444
};

// Every weighted term with its key, in the order of the keys.
std::vector<std::pair<std::string_view, LossWeight>> loss_weights(const LossConfig& config);

// Side that pictures need so that the filters of all levels fit, pixels.
int smallest_for(const WaveletConfig& config);

// Sides that a target's crop needs for them, pixels: SSIM's window fits, and on the last of MS-SSIM's five scales.
inline constexpr int kSmallestForSsim = 11, kSmallestForMsSsim = kSmallestForSsim << 4;
// And those that networks of features need: so many halvings leave a pixel (AlexNet's first layer takes every fourth).
inline constexpr int kSmallestForVgg = 16, kSmallestForAlexnet = 31;
inline constexpr int kLdlWindow = 7;  // pixels

// Parameters whose names match have settings of their own.
struct ParameterGroupConfig {
  std::string match;         // a pattern: * is any text, ? any character
  double lr_scale = 1;       // times the learning rate
  double weight_decay = -1;  // -1: the optimizer's
};

struct OptimizerConfig {
  std::string name = "adamw";  // adamw | adam | sgd | lion | schedule_free_adamw
  double lr = 2e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double eps = 1e-8;
  double momentum = 0.9;  // sgd
  bool nesterov = false;  // sgd
  double weight_decay = 0;
  std::vector<std::string> no_decay;         // patterns of names whose weights do not decay
  std::vector<ParameterGroupConfig> groups;  // the first that matches counts
  double clip_norm = 0;                      // 0: off
  double clip_value = 0;                     // 0: off
  int accumulate = 1;                        // micro-batches a step; the effective batch is data.batch * accumulate
};

struct ScheduleConfig {
  std::string name = "constant";         // constant | multistep | cosine | linear | onecycle
  std::int64_t warmup_steps = 0;         // linear from 0
  std::vector<std::int64_t> milestones;  // multistep: steps
  double gamma = 0.5;                    // multistep: factor at each
  double min_lr = 0;                     // cosine, linear: final value
  double rise = 0.3;                     // onecycle: share of the run in which the rate rises to optimizer.lr
  double start_divisor = 25;             // onecycle: the first rate is lr over this,
  double end_divisor = 1e4;              // the last is the first over this
};

// The same keys for a discriminator; only the network's optimizer accumulates.
struct DiscriminatorOptimizer : OptimizerConfig {};

// The discriminator of loss.gan.
struct DiscriminatorConfig {
  int features = 64;                 // channels of its first layer
  int scales = 1;                    // as many discriminators, each on pictures half as large
  int layers = 3;                    // patchgan: those that halve
  std::string norm = "batch";        // patchgan: batch | spectral | none
  bool skips = true;                 // unet_sn
  int frames = 1;                    // that it sees together: so many neighbours are a sample
  std::filesystem::path pretrained;  // start from this file; empty: random
  std::int64_t iters = 1;            // steps between two updates of the network, which the discriminator all takes
  std::int64_t init_iters = 0;       // steps at the start that train the discriminator alone
  double r1 = 0;                     // gamma of the R1 penalty
  std::string scaler = "own";        // own | shared: the loss scale of fp16, its own or the network's too
  std::int64_t patience = 2'000;     // steps until a lost balance is named
  DiscriminatorOptimizer optimizer;  // what is not given is as in [optimizer]
  ScheduleConfig schedule;           // and in [schedule]
};

struct EmaConfig {
  double decay = 0.999;    // 0: off
  bool warmup = true;      // decay is at most (1 + n) / (10 + n) after n updates
  std::int64_t every = 1;  // optimizer updates
};

struct PrecisionConfig {
  std::string amp = "auto";  // auto | off | fp16 | bf16
  bool tf32 = true;          // float32 convolutions and products in TF32, where the card has it
};

struct MemoryConfig {
  std::string checkpointing = "off";  // off | on | auto | a number of segments
  bool offload = false;               // what checkpointing keeps lies in pinned host memory
  std::string on_oom = "adapt";       // adapt | fail
  std::int64_t reserve_mb = 512;      // MiB of the card left to others
};

struct ValidationConfig {
  std::vector<ScriptConfig> script;  // its own scripts
  std::vector<PairsConfig> pairs;    // and folders of images, or
  std::string frames;                // a range of the training scripts ("0.8:"), which training then never sees
  std::int64_t every = 1'000;        // steps
  std::string best_by = "auto";      // auto | psnr_rgb | psnr_y | ssim_rgb | ssim_y | lpips | dists
};

struct CheckpointConfig {
  std::int64_t every = 1'000;  // steps
  int keep_last = 3;           // and the best, always
};

struct Config {
  RunConfig run;
  DataConfig data;
  ModelConfig model;
  LossConfig loss;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DiscriminatorConfig discriminator;
  EmaConfig ema;
  PrecisionConfig precision;
  MemoryConfig memory;
  ValidationConfig validation;
  CheckpointConfig checkpoint;
};

// Neighbouring frames that a sample has targets of: as loss.temporal and discriminator.frames ask for.
int sample_frames(const Config& config);

// Whether training keeps averaged weights beside the raw ones.
bool keeps_average(const Config& config);

// What validation.best_by means: "auto" is dists or lpips, where their networks are named in [loss], else psnr_rgb.
std::string best_measure(const Config& config);

// Reads and checks a whole file; `settings` are "section.key=value" with TOML values (a bare word is a string).
// Throws usage: `train.toml:14: optimizer.lrr: unknown key (did you mean "lr"?)`. Touches nothing.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& settings = {});

// The same from text; relative paths are taken against `base`. `name` stands in messages.
Config parse_config(const std::string& toml, const std::string& name, const std::filesystem::path& base,
                    const std::vector<std::string>& settings = {});

// The config.toml of a run, as it was: files that it names may have moved since.
Config load_saved_config(const std::filesystem::path& file);

// Every key with its value, readable by parse_config: written to a run's config.toml.
std::string to_toml(const Config& config);

// One line per key whose value differs: `optimizer.lr: 0.0002 -> 0.0001`.
std::vector<std::string> differences(const Config& a, const Config& b);

// The reference page docs/config.md: every key with type, default, allowed values and help.
std::string config_reference();

}  // namespace reelgrad
