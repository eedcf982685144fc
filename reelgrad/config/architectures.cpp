#include "reelgrad/config/architectures.h"

#include <array>

namespace reelgrad {
namespace {

constexpr std::array<int, 4> kCompactScales{1, 2, 3, 4};
constexpr std::array<ArchitectureOption, 3> kCompactOptions{{
    {"features", "int", "64", "1..1024", "channels of the hidden layers"},
    {"convs", "int", "16", "1..1024", "convolutions between the first and the last"},
    {"activation", "choice", "prelu", "prelu|relu|leakyrelu", "after every convolution but the last"},
}};

constexpr std::array<int, 5> kShuffleScales{1, 2, 3, 4, 8};
constexpr std::array<int, 4> kEsrganScales{1, 2, 4, 8};
constexpr std::array<int, 1> kSameSize{1};

constexpr std::array<ArchitectureOption, 5> kDncnnOptions{{
    {"features", "int", "64", "1..1024", "channels of the hidden layers"},
    {"depth", "int", "17", "3..1024", "convolutions; 20 is usual for noise of unknown level"},
    {"batch_norm", "bool", "true", "", "after every convolution but the first and the last"},
    {"noise_map", "bool", "false", "", "a noise level beside the picture (FDnCNN)"},
    {"sigma", "int", "15", "0..255", "with noise_map: the noise level of pictures that come without one, of 255"},
}};
constexpr std::array<ArchitectureOption, 9> kDrunetOptions{{
    {"features", "int", "64", "1..4096", "channels of the first level"},
    {"features2", "int", "128", "1..4096", "of the second, at half the size"},
    {"features3", "int", "256", "1..4096", "of the third"},
    {"features4", "int", "512", "1..4096", "of the fourth"},
    {"blocks", "int", "4", "1..256", "residual blocks of a level"},
    {"downsample", "choice", "strideconv", "strideconv|avgpool", "how a level is left downwards"},
    {"upsample", "choice", "convtranspose", "convtranspose|upconv|pixelshuffle", "how a level is left upwards"},
    {"noise_map", "bool", "true", "", "a noise level beside the picture"},
    {"sigma", "int", "15", "0..255", "with noise_map: the noise level of pictures that come without one, of 255"},
}};
constexpr std::array<ArchitectureOption, 6> kEsrganOptions{{
    {"features", "int", "64", "1..1024", "channels between the blocks"},
    {"blocks", "int", "23", "1..1024", "residual blocks of three dense blocks each"},
    {"growth", "int", "32", "1..1024", "channels that a convolution in a dense block adds"},
    {"unshuffle", "int", "1", "1..4", "first fold the picture by it, for speed; usual: 2 at scale 2, 4 at scale 1"},
    {"plus", "bool", "false", "", "two more residual paths in a dense block (ESRGAN+)"},
    {"keys", "choice", "model", "model|body|RRDB_trunk",
     "names of the weights: as traiNNer-redux, BasicSR and neosr, or BSRGAN have them"},
}};
constexpr std::array<ArchitectureOption, 4> kNafnetOptions{{
    {"width", "int", "32", "1..1024", "channels of the first level; twice as many on each below"},
    {"enc_blk_nums", "ints", "1,1,1,28", "1..1024", "blocks of each level on the way down; 2, 2, 4, 8 for denoising"},
    {"middle_blk_num", "int", "1", "1..1024", "blocks of the lowest level; 12 for denoising"},
    {"dec_blk_nums", "ints", "1,1,1,1", "1..1024", "blocks of each level on the way up; 2, 2, 2, 2 for denoising"},
}};
constexpr std::array<ArchitectureOption, 7> kRealPlksrOptions{{
    {"features", "int", "64", "1..1024", "channels of the hidden layers"},
    {"blocks", "int", "28", "1..1024", "residual blocks"},
    {"kernel", "int", "17", "1..127", "side of the large kernel; odd"},
    {"kernel_features", "int", "0", "0..1024", "channels that see through it; 0: a quarter of features"},
    {"attention", "bool", "true", "", "element-wise attention in each block"},
    {"norm", "choice", "layer", "layer|group",
     "layer: as traiNNer-redux has it; group: as neosr does, for whole pictures"},
    {"upsampler", "choice", "pixelshuffle", "pixelshuffle|dysample", "the last layer"},
}};
constexpr std::array<ArchitectureOption, 10> kSwinirOptions{{
    {"features", "int", "60", "1..4096", "channels of the blocks; 180 in the paper's large networks"},
    {"depths", "ints", "6,6,6,6", "1..256", "transformer blocks of each group"},
    {"heads", "ints", "6,6,6,6", "1..256", "of attention, in each group; features must be a multiple"},
    {"window", "int", "8", "2..64", "side of the windows of attention; 7: as in the paper's JPEG networks"},
    {"mlp_features", "int", "0", "0..65536", "channels between a block's two layers; 0: twice the features"},
    {"upsampler", "choice", "pixelshuffledirect", "pixelshuffledirect|pixelshuffle|nearest+conv|none",
     "the last layers: for speed, for quality, for pictures of any origin, at scale 1"},
    {"resi_connection", "choice", "1conv", "1conv|3conv", "convolutions after each group"},
    {"unshuffle", "int", "1", "1..8", "first fold the picture by it, for speed"},
    {"img_size", "int", "0", "0..4096",
     "side of the pictures whose masks are in the file, for other readers; 0: 64, or near it"},
    {"drop_path", "int", "10", "0..90", "percent of the pictures that the last block leaves out in training"},
}};
constexpr std::array<ArchitectureOption, 2> kSpanOptions{{
    {"features", "int", "48", "1..1024", "channels of the hidden layers; 52 in traiNNer-redux"},
    {"norm", "bool", "false", "", "take the mean colour of DIV2K from the input"},
}};
constexpr std::array<ArchitectureOption, 2> kTemporalSpanOptions{{
    {"features", "int", "48", "8..1024", "channels of the hidden layers, and of the middle frame; a multiple of 8"},
    {"frame_features", "int", "12", "1..1024", "channels of each other frame"},
}};
constexpr std::array<int, 3> kTscunetScales{1, 2, 4};
constexpr std::array<ArchitectureOption, 6> kTscunetOptions{{
    {"features", "int", "64", "64..1024", "channels of the first level; a multiple of 64"},
    {"blocks", "int", "2", "1..64", "of a level, each a convolution and a transformer side by side"},
    {"residual", "bool", "true", "", "add the middle frame's first features to what comes out"},
    {"sigma", "bool", "false", "", "the file has layers that guess how sure it is; kept, and not trained"},
    {"noise", "bool", "true", "", "in training, noise of 0.05 after every block, as published"},
    {"shift_innermost", "bool", "true", "",
     "shift windows in the innermost level too; false for those trained with input_resolution 64"},
}};
constexpr std::array<ArchitectureOption, 2> kFastDvdnetOptions{{
    {"features", "int", "32", "1..1024", "channels of the first level"},
    {"sigma", "int", "25", "0..255", "the noise level of pictures that come without one, of 255"},
}};

// A network of the user's own may have any.
constexpr std::array<int, 16> kOwnScales{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr std::array<ArchitectureOption, 3> kTorchScriptOptions{{
    {"file", "file", "", "a TorchScript file", "the network, saved by torch.jit.script(network).save(file)"},
    {"size_multiple", "int", "0", "0..1024", "input height and width must be multiples of it; 0: measured"},
    {"receptive_radius_px", "int", "-1", "-1..4096",
     "input pixels around a pixel that its output depends on; -1: measured"},
}};
constexpr std::array<ArchitectureOption, 1> kModuleOptions{{
    {"module", "file", "", "a shared library", "the network, built against reelgrad/nn/module.h"},
}};

constexpr auto kArchitectures = std::to_array<ArchitectureEntry>({
    {"compact", "SRVGGNetCompact: plain 3x3 convolutions and one pixel shuffle, made for speed", kCompactScales,
     kCompactOptions},
    {"dncnn", "DnCNN and FDnCNN: plain 3x3 convolutions that find the noise", kSameSize, kDncnnOptions},
    {"drunet", "DRUNet: a deep residual U-Net that removes noise of a given level", kSameSize, kDrunetOptions},
    {"esrgan", "ESRGAN's RRDBNet, and Real-ESRGAN's: dense blocks, large and slow", kEsrganScales, kEsrganOptions},
    {"fastdvdnet", "FastDVDnet: removes noise of a given level from the middle one of five frames", kSameSize,
     kFastDvdnetOptions, /*takes_args=*/false, /*window=*/5},
    {"nafnet", "NAFNet: a U without activations, for denoising and deblurring", kSameSize, kNafnetOptions},
    {"realplksr", "RealPLKSR: large kernels on a part of the channels", kShuffleScales, kRealPlksrOptions},
    {"span", "SPAN: parameter-free attention, made for speed", kShuffleScales, kSpanOptions},
    {"swinir", "SwinIR: transformer blocks within windows", kShuffleScales, kSwinirOptions},
    {"temporalspan", "TemporalSPAN: SPAN on five frames", kShuffleScales, kTemporalSpanOptions, /*takes_args=*/false,
     /*window=*/5},
    {"tscunet", "TSCUNet: convolutions and transformers on five frames, large and slow", kTscunetScales,
     kTscunetOptions, /*takes_args=*/false, /*window=*/5},
    {"torchscript", "A network of your own in PyTorch, in a TorchScript file", kOwnScales, kTorchScriptOptions},
    {"module", "A network of your own in C++, in a shared library", kOwnScales, kModuleOptions, /*takes_args=*/true},
});

}  // namespace

std::span<const ArchitectureEntry> architectures() {
  return kArchitectures;
}

const ArchitectureEntry* find_architecture(std::string_view name) {
  for (const ArchitectureEntry& entry : kArchitectures) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace reelgrad
