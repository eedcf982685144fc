// Files of torch.save (.pth, .pt, .ckpt), read without Python and without running what is in them.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "reelgrad/nn/weights_file.h"
#include "reelgrad/nn/zip_file.h"

namespace reelgrad {

// The weights of a network: of a state_dict, of one inside the dicts that trainers save (the averaged ones first:
// params_ema, params, model_state_dict, state_dict, …), or of a checkpoint of Lightning; without the prefixes that
// wrappers put before names (module., _orig_mod., netG., generator.). Both layouts of torch.save: zip, and the one
// before PyTorch 1.6. Tensors that are aligned in the file are views of it, as they were saved: strided ones strided,
// and tied ones tied. Objects of unknown classes are passed over. Throws failed.
WeightsFile read_torch_file(const std::filesystem::path& path);

// As torch.save writes {"params": {…}, and each text under its key}, for torch.load(weights_only=True): the key that
// BasicSR, neosr, traiNNer and spandrel look for. Written atomically; tensors are made contiguous and brought to the
// CPU.
void write_torch_file(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& texts = {});

// Whether an archive is a network of torch.jit.save, and not weights.
bool holds_torchscript(const ZipReader& archive);

}  // namespace reelgrad
