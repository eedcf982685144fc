// Every key of the configuration, once: `fields(visitor, struct)` calls visitor(member, Field) for each. Reading,
// checking, printing, comparing and documenting are such visitors. For config/'s own use.
#pragma once
#include <limits>
#include <string>
#include <string_view>

#include "reelgrad/config/config.h"
#include "reelgrad/config/feature_files.h"

namespace reelgrad {

// What is known of a key besides its type and default, which are the member's.
struct Field {
  std::string_view key;
  std::string_view help;
  std::string_view unit = {};
  double min = -std::numeric_limits<double>::infinity();  // of a number
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                       // min itself is not allowed
  std::string_view choices = {};                // of a string: "rgb|gray|yuv444"
  bool (*accepts)(std::string_view) = nullptr;  // of a string without choices
  std::string_view accepted = {};               // what `accepts` allows, in words
  bool is_run_folder = false;                   // a path against the working directory that need not exist
  bool may_be_integer = false;                  // a string that may also be written as an integer
  std::string_view default_text = {};           // where the default is not the member's
  std::string_view if_missing = {};             // of a path: where the file comes from
};

bool is_run_name(std::string_view text);
bool is_device_name(std::string_view text);
bool is_frames_or_empty(std::string_view text);
bool is_checkpointing(std::string_view text);

inline constexpr double kMostSteps = 1'000'000'000;

template <class V>
void fields(V& v, RunConfig& c) {
  v(c.name, {.key = "name",
             .help = "name of the run",
             .accepts = is_run_name,
             .accepted = "a name without slashes",
             .default_text = "the configuration file's name without its ending"});
  v(c.dir, {.key = "dir",
            .help = "folder of the run, against the working directory",
            .is_run_folder = true,
            .default_text = "runs/ and the run's name"});
  v(c.steps, {.key = "steps", .help = "optimizer steps of the whole run", .min = 1, .max = kMostSteps});
  v(c.seed, {.key = "seed", .help = "of the weights and of every random choice", .min = 0});
  v(c.device, {.key = "device",
               .help = "where to train; auto: the first usable card, else the processor",
               .accepts = is_device_name,
               .accepted = "auto, cpu, cuda or cuda:N"});
  v(c.deterministic, {.key = "deterministic", .help = "the same bits on every run, at some cost in speed"});
  v(c.log_every, {.key = "log_every",
                  .help = "a line in metrics.jsonl at every so many steps",
                  .unit = "steps",
                  .min = 1,
                  .max = kMostSteps});
  v(c.tensorboard, {.key = "tensorboard",
                    .help = "the numbers of metrics.jsonl also in events.out.tfevents… in the run's folder, for "
                            "TensorBoard"});
  v(c.graph, {.key = "graph",
              .help = "on a card each step is replayed as one CUDA graph, where the network allows it",
              .choices = "auto|off"});
}

template <class V>
void fields(V& v, ScriptConfig& c) {
  v(c.path, {.key = "path", .help = "a VapourSynth script (.vpy)", .default_text = "required"});
  v(c.weight, {.key = "weight",
               .help = "its share of the samples is weight over the sum of weights",
               .min = 0,
               .max = 1e9,
               .above_min = true});
  v(c.start, {.key = "start", .help = "first frame used", .unit = "frames", .min = 0, .max = 1e12});
  v(c.end, {.key = "end",
            .help = "one past the last frame used; -1: the clip's end",
            .unit = "frames",
            .min = -1,
            .max = 1e12});
  v(c.args, {.key = "args", .help = "variables set in the script"});
}

template <class V>
void fields(V& v, PairsConfig& c) {
  v(c.input, {.key = "input", .help = "folder of the inputs, with its sub-folders", .default_text = "required"});
  v(c.target, {.key = "target",
               .help = "folder of the targets: the same names, but for the ending and x2, _LR, _HR and the like",
               .default_text = "required"});
  v(c.weight, {.key = "weight",
               .help = "their share of the samples is weight over the sum of weights, the scripts' included",
               .min = 0,
               .max = 1e9,
               .above_min = true});
}

template <class V>
void fields(V& v, ColorOverrides& c) {
  v(c.matrix_in,
    {.key = "matrix_in",
     .help = "colour matrix, where a clip's property is missing or wrong (a name, or the number of ITU-T H.273 "
             "as a string)",
     .choices = "auto|rgb|709|470bg|170m|601|240m|fcc|2020ncl|0|1|4|5|6|7|9"});
  v(c.range_in, {.key = "range_in",
                 .help = "value range, where a clip's property is missing or wrong",
                 .choices = "auto|full|limited"});
  v(c.chromaloc_in, {.key = "chromaloc_in",
                     .help = "chroma location, where a clip's property is missing or wrong",
                     .choices = "auto|left|center|top_left|top|bottom_left|bottom"});
}

template <class V>
void fields(V& v, DataConfig& c) {
  v(c.script, {.key = "script",
               .help = "what to train on: output 0 is the target, output 1 the input; a path, or a list of paths and "
                       "tables",
               .default_text = "required without pairs"});
  v(c.pairs, {.key = "pairs",
              .help = "two folders of images to train on, instead of a script or beside it; a table, or a list of them",
              .default_text = "none"});
  v(c.batch, {.key = "batch", .help = "samples of one micro-batch", .min = 1, .max = 65'536});
  v(c.crop_px, {.key = "crop_px", .help = "side of the input crop", .unit = "pixels", .min = 8, .max = 8'192});
  v(c.window,
    {.key = "window", .help = "frames the network sees; an odd number", .unit = "frames", .min = 1, .max = 63});
  v(c.frame_step, {.key = "frame_step",
                   .help = "distance of neighbours in a window (anime is drawn on twos)",
                   .unit = "frames",
                   .min = 1,
                   .max = 64});
  v(c.color, {.key = "color", .help = "what the network sees", .choices = "rgb|gray|yuv444"});
  v(c.augment, {.key = "augment", .help = "flips and quarter turns of the crops"});
  v(c.reuse, {.key = "reuse", .help = "crops taken from a decoded frame", .unit = "crops", .min = 1, .max = 65'536});
  v(c.segment_frames, {.key = "segment_frames",
                       .help = "frames decoded in one go; at least a whole window",
                       .unit = "frames",
                       .min = 1,
                       .max = 65'536});
  v(c.pool_frames, {.key = "pool_frames",
                    .help = "frames held ready to be cropped; at least a segment",
                    .unit = "frames",
                    .min = 1,
                    .max = 1'048'576});
  v(c.scene_cuts, {.key = "scene_cuts",
                   .help = "windows do not reach across scene cuts; props: those that the frame properties "
                           "_SceneChangePrev and _SceneChangeNext tell of; auto: and where a segment's frames have "
                           "neither, those that the pictures show",
                   .choices = "auto|props|off"});
  v(c.skip_duplicates, {.key = "skip_duplicates",
                        .help = "leave out frames whose input and target both repeat the frame before exactly; "
                                "frame_step counts the others"});
  fields(v, c.overrides);
}

template <class V>
void fields(V& v, ModelConfig& c) {
  v(c.arch, {.key = "arch", .help = "architecture of the network"});
  v(c.scale, {.key = "scale", .help = "size of the target over the input", .min = 1, .max = 16});
  v(c.pretrained, {.key = "pretrained",
                   .help = "start from this model: a file, a checkpoint or a run folder",
                   .default_text = "random weights"});
  v(c.pretrained_fit,
    {.key = "pretrained_fit",
     .help = "strict: every tensor of pretrained must fit; partial: those that do not are told of and "
             "start anew (another scale's last layer, say)",
     .choices = "strict|partial"});
  v(c.args, {.key = "args", .help = "what a network of arch = \"module\" is made with"});
  v.options(c);  // the keys of the architecture itself
}

template <class V>
void fields_of_weight(V& v, LossWeight& c) {
  v(c.weight,
    {.key = "weight", .help = "the term's weight; 0: off", .min = 0, .max = 1e6, .default_text = "`1` in a table"});
  v(c.start,
    {.key = "start", .help = "the term counts after so many steps", .unit = "steps", .min = 0, .max = kMostSteps});
  v(c.ramp, {.key = "ramp",
             .help = "its weight rises linearly over so many steps from there; 0: at once",
             .unit = "steps",
             .min = 0,
             .max = kMostSteps});
}

template <class V>
void fields(V& v, LossWeight& c) {
  fields_of_weight(v, c);
}

template <class V>
void fields(V& v, PerceptualConfig& c) {
  fields_of_weight(v, c);
  v(c.weights, {.key = "weights",
                .help = "torchvision's VGG19, a .pth or .safetensors file",
                .default_text = "required",
                .if_missing = kNoVgg19});
  v(c.layers, {.key = "layers",
               .help = "layers and their weights: convB_N before the activation, reluB_N after it, poolB; the default "
                       "is Real-ESRGAN's",
               .min = 0,
               .max = 1e6});
  v(c.criterion, {.key = "criterion",
                  .help = "l1, mse: of the features; gram: mean absolute difference of their Gram matrices (style)",
                  .choices = "l1|mse|gram"});
}

template <class V>
void fields(V& v, LpipsConfig& c) {
  fields_of_weight(v, c);
  v(c.net, {.key = "net", .help = "the network of features: VGG16 or AlexNet", .choices = "vgg|alex"});
  v(c.backbone, {.key = "backbone",
                 .help = "torchvision's VGG16 or AlexNet, a .pth or .safetensors file",
                 .default_text = "required",
                 .if_missing = kNoLpipsBackbone});
  v(c.weights, {.key = "weights",
                .help = "LPIPS's own weights, version 0.1",
                .default_text = "those of the installed Python package lpips",
                .if_missing = kNoLpips});
}

template <class V>
void fields(V& v, DistsConfig& c) {
  fields_of_weight(v, c);
  v(c.backbone, {.key = "backbone",
                 .help = "torchvision's VGG16, a .pth or .safetensors file",
                 .default_text = "required",
                 .if_missing = kNoVgg16});
  v(c.weights, {.key = "weights",
                .help = "DISTS's own weights",
                .default_text = "those of the installed Python package DISTS-pytorch",
                .if_missing = kNoDists});
}

template <class V>
void fields(V& v, FocalFrequencyConfig& c) {
  fields_of_weight(v, c);
  v(c.alpha, {.key = "alpha",
              .help = "power of a frequency's own distance in its weight; 0: all weigh the same",
              .min = 0,
              .max = 10});
}

template <class V>
void fields(V& v, LdlConfig& c) {
  fields_of_weight(v, c);
  v(c.ema,
    {.key = "ema",
     .help = "only where the output of the averaged weights (ema) is no further from the target, as in the paper "
             "and BasicSR: one more forward pass; without an average it does nothing"});
}

template <class V>
void fields(V& v, WaveletConfig& c) {
  fields_of_weight(v, c);
  v(c.filter, {.key = "filter", .help = "wavelet, as PyWavelets names it", .choices = "haar|db2|sym7"});
  v(c.levels, {.key = "levels", .help = "of the stationary transform", .min = 1, .max = 5});
  const auto band = [&](double& value, std::string_view key, std::string_view help) {
    v(value, {.key = key, .help = help, .min = 0, .max = 1e6});
  };
  band(c.ll, "ll", "weight of the last level's low frequencies");
  band(c.lh, "lh", "weight of the detail along x, of every level");
  band(c.hl, "hl", "weight of the detail along y, of every level");
  band(c.hh, "hh", "weight of the detail along both, of every level");
}

template <class V>
void fields(V& v, ColorLossConfig& c) {
  fields_of_weight(v, c);
  v(c.block_px, {.key = "block_px",
                 .help = "side of the squares over which the colour is averaged",
                 .unit = "pixels",
                 .min = 1,
                 .max = 1'024});
}

template <class V>
void fields(V& v, GanConfig& c) {
  fields_of_weight(v, c);
  v(c.net,
    {.key = "net",
     .help = "discriminator: Real-ESRGAN's U-Net with spectral norm, ESRGAN's of VGG's kind (made for one size of "
             "crops), or pix2pix's patches",
     .choices = "unet_sn|patch_vgg|patchgan"});
  v(c.kind,
    {.key = "kind",
     .help = "vanilla: binary cross entropy; lsgan: squared distance from the labels; hinge; ragan and ralsgan: "
             "vanilla and lsgan of how much more real the ones are than the others on average (of a "
             "micro-batch)",
     .choices = "vanilla|lsgan|hinge|ragan|ralsgan"});
  v(c.label_smoothing, {.key = "label_smoothing",
                        .help = "real pictures are labelled 1 less this for the discriminator; not with hinge",
                        .min = 0,
                        .max = 0.5});
}

template <class V>
void fields(V& v, LossConfig& c) {
  const auto weight = [&](auto& value, std::string_view key, std::string_view help) {
    v(value, {.key = key, .help = help, .min = 0, .max = 1e6});
  };
  weight(c.l1, "l1", "weight of the mean absolute difference");
  weight(c.mse, "mse", "weight of the mean squared difference");
  weight(c.charbonnier, "charbonnier", "weight of the mean of sqrt(d^2 + eps^2); 0 when another weight is given");
  weight(c.huber, "huber", "weight of the Huber loss: the mean of d^2 / 2 up to huber_delta, a line beyond it");
  weight(c.ssim, "ssim", "weight of 1 - SSIM (Gaussian window of 11, sigma 1.5; each channel by itself)");
  weight(c.ms_ssim, "ms_ssim", "weight of 1 - MS-SSIM (five scales: the target's crop has 176 pixels or more)");
  weight(c.fft, "fft",
         "weight of the mean absolute difference of the spectra's real and imaginary parts (rfft2, ortho)");
  weight(c.edge, "edge", "weight of the mean absolute difference of the edges that edge_operator finds");
  weight(c.temporal, "temporal",
         "weight of the mean absolute difference of the changes from frame to frame: samples are of two neighbours, "
         "frame_step apart");
  weight(c.ldl, "ldl",
         "weight of the locally discriminative loss: the mean absolute difference where its size varies, as artifacts "
         "do");
  weight(c.perceptual, "perceptual", "weight of the difference of VGG19's features");
  weight(c.lpips, "lpips", "weight of LPIPS 0.1, a learned distance of features");
  weight(c.dists, "dists", "weight of DISTS, which compares structure and texture of features");
  weight(c.focal_frequency, "focal_frequency",
         "weight of the focal frequency loss: frequencies count by how far apart they are");
  weight(c.wavelet, "wavelet", "weight of the mean absolute difference of wavelet bands, each with its own weight");
  weight(c.color, "color", "weight of the mean absolute difference of Cb and Cr (BT.709) averaged over squares");
  weight(c.gan, "gan", "weight of the adversarial term, whose discriminator is set up in [discriminator]");
  v(c.charbonnier_eps, {.key = "charbonnier_eps", .help = "Charbonnier's eps", .min = 0, .max = 1, .above_min = true});
  v(c.huber_delta,
    {.key = "huber_delta", .help = "where Huber's parabola ends", .min = 0, .max = 1e6, .above_min = true});
  v(c.edge_operator, {.key = "edge_operator",
                      .help = "Sobel's gradient (over 8, both directions) or the Laplacian of four neighbours",
                      .choices = "sobel|laplacian"});
  v(c.luma_weight,
    {.key = "luma_weight",
     .help = "of Y' in the means of l1, mse, charbonnier and huber, which see BT.709 Y'CbCr when this or "
             "chroma_weight is not 1",
     .min = 0,
     .max = 1e6});
  v(c.chroma_weight, {.key = "chroma_weight", .help = "of Cb and Cr there", .min = 0, .max = 1e6});
}

template <class V>
void fields(V& v, ParameterGroupConfig& c) {
  v(c.match, {.key = "match",
              .help = "pattern of parameter names: * stands for any text, ? for any character",
              .default_text = "required"});
  v(c.lr_scale,
    {.key = "lr_scale", .help = "factor of the learning rate; 0: these stay as they are", .min = 0, .max = 1e6});
  v(c.weight_decay,
    {.key = "weight_decay", .help = "instead of optimizer.weight_decay; -1: the same", .min = -1, .max = 10});
}

template <class V>
void rule_fields(V& v, OptimizerConfig& c) {
  v(c.name,
    {.key = "name",
     .help = "AdamW, Adam and SGD as PyTorch's, Lion as in its paper, Schedule-Free AdamW as in its authors' code",
     .choices = "adamw|adam|sgd|lion|schedule_free_adamw"});
  v(c.lr, {.key = "lr", .help = "learning rate before the schedule", .min = 0, .max = 10, .above_min = true});
  v(c.beta1, {.key = "beta1", .help = "decay of the mean gradient", .min = 0, .max = 0.999999});
  v(c.beta2,
    {.key = "beta2", .help = "decay of the mean squared gradient; of Lion's momentum", .min = 0, .max = 0.999999});
  v(c.eps, {.key = "eps", .help = "added to the denominator", .min = 0, .max = 1, .above_min = true});
  v(c.momentum, {.key = "momentum", .help = "sgd: of the gradient", .min = 0, .max = 0.999999});
  v(c.nesterov, {.key = "nesterov", .help = "sgd: Nesterov's momentum"});
  v(c.weight_decay,
    {.key = "weight_decay", .help = "added to the gradient by adam and sgd, decoupled elsewhere", .min = 0, .max = 10});
  v(c.no_decay,
    {.key = "no_decay", .help = "patterns of parameter names whose weights do not decay, such as \"*.bias\""});
  v(c.groups,
    {.key = "groups", .help = "settings for some parameters: the first that matches counts", .default_text = "none"});
  v(c.clip_norm, {.key = "clip_norm", .help = "largest norm of the whole gradient; 0: off", .min = 0, .max = 1e9});
  v(c.clip_value,
    {.key = "clip_value", .help = "largest absolute value in the gradient; 0: off", .min = 0, .max = 1e9});
}

template <class V>
void fields(V& v, DiscriminatorOptimizer& c) {
  rule_fields(v, c);
}

template <class V>
void fields(V& v, OptimizerConfig& c) {
  rule_fields(v, c);
  v(c.accumulate, {.key = "accumulate",
                   .help = "micro-batches a step; the effective batch is data.batch times this",
                   .min = 1,
                   .max = 65'536});
}

template <class V>
void fields(V& v, ScheduleConfig& c) {
  v(c.name,
    {.key = "name", .help = "how the learning rate falls", .choices = "constant|multistep|cosine|linear|onecycle"});
  v(c.warmup_steps, {.key = "warmup_steps",
                     .help = "the learning rate rises linearly from 0 over so many steps",
                     .unit = "steps",
                     .min = 0,
                     .max = kMostSteps});
  v(c.milestones, {.key = "milestones",
                   .help = "multistep: where the learning rate is multiplied by gamma, rising",
                   .unit = "steps",
                   .min = 1,
                   .max = kMostSteps});
  v(c.gamma,
    {.key = "gamma", .help = "multistep: the factor at each milestone", .min = 0, .max = 1, .above_min = true});
  v(c.min_lr, {.key = "min_lr", .help = "cosine, linear: the learning rate at the last step", .min = 0, .max = 10});
  v(c.rise, {.key = "rise", .help = "onecycle: share of the run in which the learning rate rises", .min = 0, .max = 1});
  v(c.start_divisor, {.key = "start_divisor",
                      .help = "onecycle: the first learning rate is optimizer.lr over this",
                      .min = 1,
                      .max = 1e9});
  v(c.end_divisor,
    {.key = "end_divisor", .help = "onecycle: the last one is the first over this", .min = 1, .max = 1e12});
}

template <class V>
void fields(V& v, DiscriminatorConfig& c) {
  v(c.features, {.key = "features", .help = "channels of the first layer", .min = 1, .max = 1'024});
  v(c.scales, {.key = "scales",
               .help = "so many discriminators, each on pictures half as large as the one before; their losses' mean "
                       "counts",
               .min = 1,
               .max = 8});
  v(c.layers, {.key = "layers", .help = "patchgan: layers that halve the picture", .min = 1, .max = 8});
  v(c.norm, {.key = "norm",
             .help = "patchgan: with batch norm a batch is never split for want of memory",
             .choices = "batch|spectral|none"});
  v(c.skips, {.key = "skips", .help = "unet_sn: connections from the way down to the way up"});
  v(c.frames,
    {.key = "frames",
     .help = "so many neighbours, frame_step apart, are a sample: the network runs on each of their windows, and the "
             "discriminator sees the outputs together, their channels one after the other",
     .unit = "frames",
     .min = 1,
     .max = 63});
  v(c.pretrained,
    {.key = "pretrained",
     .help = "start from this discriminator: a file with the community's keys, a checkpoint or a run folder",
     .default_text = "random weights"});
  v(c.iters, {.key = "iters",
              .help = "the network is updated at every so many steps, the discriminator at each",
              .unit = "steps",
              .min = 1,
              .max = 10'000});
  v(c.init_iters, {.key = "init_iters",
                   .help = "so many steps at the start train the discriminator alone",
                   .unit = "steps",
                   .min = 0,
                   .max = kMostSteps});
  v(c.r1, {.key = "r1",
           .help = "gamma of the R1 penalty, gamma / 2 times the squared gradient of D(real) by the picture; 0: off",
           .min = 0,
           .max = 1e6});
  v(c.scaler,
    {.key = "scaler",
     .help = "fp16's loss scale; own: each network has one, as in traiNNer-redux; shared: one for both, which "
             "shrinks when either of them skips a step",
     .choices = "own|shared"});
  v(c.patience, {.key = "patience",
                 .help = "a discriminator that dominates or guesses for so long is named in the log, with advice",
                 .unit = "steps",
                 .min = 1,
                 .max = kMostSteps});
}

template <class V>
void fields(V& v, EmaConfig& c) {
  v(c.decay, {.key = "decay",
              .help = "of the moving average of the weights, which is validated and saved; 0: off",
              .min = 0,
              .max = 0.9999999});
  v(c.warmup,
    {.key = "warmup", .help = "the decay is at most (1 + n) / (10 + n) after n updates: the start is forgotten"});
  v(c.every, {.key = "every", .help = "optimizer updates between two of the average", .min = 1, .max = 1'000'000});
}

template <class V>
void fields(V& v, PrecisionConfig& c) {
  v(c.amp, {.key = "amp",
            .help = "half precision in the network; auto: bf16 from compute capability 8.0 on, fp16 on 7.x, on the "
                    "processor bf16 only where it is native",
            .choices = "auto|off|fp16|bf16"});
  v(c.tf32, {.key = "tf32", .help = "float32 convolutions and matrix products may use TF32 on cards that have it"});
}

template <class V>
void fields(V& v, MemoryConfig& c) {
  v(c.checkpointing, {.key = "checkpointing",
                      .help = "forget activations and compute them again in the backward pass: in about as many "
                              "segments as the root of the network's blocks (on), in so many (a number), or as needed "
                              "to fit (auto)",
                      .accepts = is_checkpointing,
                      .accepted = "off, on, auto or a number of segments from 1 to 4096",
                      .may_be_integer = true});
  v(c.offload, {.key = "offload", .help = "what checkpointing keeps lies in host memory until it is needed"});
  v(c.on_oom, {.key = "on_oom",
               .help = "when the card's memory runs out: find a way to go on with the same samples, or fail",
               .choices = "adapt|fail"});
  v(c.reserve_mb,
    {.key = "reserve_mb", .help = "memory of the card left to others", .unit = "MiB", .min = 0, .max = 1'048'576});
}

template <class V>
void fields(V& v, ValidationConfig& c) {
  v(c.script,
    {.key = "script", .help = "what to validate on, as data.script; not together with frames", .default_text = "none"});
  v(c.pairs, {.key = "pairs",
              .help = "two folders of images to validate on, as data.pairs; not together with frames",
              .default_text = "none"});
  v(c.frames, {.key = "frames",
               .help = "frames of the training scripts, and images of the training pairs in order of their names, to "
                       "validate on, which training then never sees",
               .accepts = is_frames_or_empty,
               .accepted = "a range a:b, a: or :b of frames or fractions such as 0.8:",
               .default_text = "none"});
  v(c.every, {.key = "every", .help = "steps between validations", .unit = "steps", .min = 1, .max = kMostSteps});
  v(c.best_by,
    {.key = "best_by",
     .help = "the measure by which the best checkpoint is chosen, over all frames; auto: dists or lpips where "
             "[loss] names their backbone, of whatever weight, else psnr_rgb",
     .choices = "auto|psnr_rgb|psnr_y|ssim_rgb|ssim_y|lpips|dists"});
}

template <class V>
void fields(V& v, CheckpointConfig& c) {
  v(c.every, {.key = "every", .help = "steps between checkpoints", .unit = "steps", .min = 1, .max = kMostSteps});
  v(c.keep_last, {.key = "keep_last", .help = "checkpoints kept, and the best, always", .min = 1, .max = 1'000'000});
}

// Calls visitor.section(name, help, struct) for each, and visitor.section_like(name, struct, other name, other struct)
// for those whose defaults are what another section before them holds.
template <class V>
void sections(V& v, Config& c) {
  v.section("run", "The run as a whole.", c.run);
  v.section("data", "What is trained on, and how it is cut into samples.", c.data);
  v.section("model", "The network.", c.model);
  v.section("loss", "What training makes small.", c.loss);
  v.section("optimizer", "How the weights are changed.", c.optimizer);
  v.section("schedule", "The learning rate over the run.", c.schedule);
  v.section("discriminator", "The other network of an adversarial training, for loss.gan.", c.discriminator);
  v.section_like("discriminator.optimizer", c.discriminator.optimizer, "optimizer", c.optimizer);
  v.section_like("discriminator.schedule", c.discriminator.schedule, "schedule", c.schedule);
  v.section("ema", "The moving average of the weights.", c.ema);
  v.section("precision", "The numbers that the network computes with.", c.precision);
  v.section("memory", "What is done for a network that is too large for the card.", c.memory);
  v.section("validation", "How good the network is on frames that it never saw.", c.validation);
  v.section("checkpoint", "When the run is saved.", c.checkpoint);
}

// What a key allows, in words: "an integer from 1 to 65536".
std::string allowed_integer(const Field& field);
std::string allowed_integers(const Field& field);
std::string allowed_number(const Field& field);
std::string allowed_string(const Field& field);

// "a number from 0 up, or a table { weight, start, ramp }"
class KeyList {
 public:
  template <class T>
  void operator()(T&, const Field& field) {
    text_ += text_.empty() ? "" : ", ";
    text_ += field.key;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <class T>
std::string allowed_weight(T value, const Field& field) {
  KeyList keys;
  fields(keys, value);
  return allowed_number(field) + ", or a table { " + keys.text() + " }";
}

// An architecture's option as the field it is: kind "int", "ints", "bool" or "choice".
struct ArchitectureOption;
Field field_of(const ArchitectureOption& option);

}  // namespace reelgrad
