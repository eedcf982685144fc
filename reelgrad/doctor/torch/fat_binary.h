// Which cards the kernels inside a library were compiled for. nvcc leaves one fat binary a source file in the section
// .nv_fatbin: a header, then an entry for each architecture, machine code (SASS) or PTX. NVIDIA documents the entries
// nowhere; what is used of them here was read off the output of nvcc 13.0, with known flags.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/doctor/torch/elf_file.h"

namespace reelgrad {

// "sm_80", "sm_90a", "sm_100f", then PTX: "compute_120"; ascending. Those that at least half of the fat binaries have:
// a few special kernels for a newer card do not make a library run there. Only headers are read, so that a library of
// gigabytes takes milliseconds. nullopt: there is no such section, or it cannot be walked to its end.
std::optional<std::vector<std::string>> fat_binary_architectures(ElfFile& library);

// The list that PyTorch was told to build for, which some of its libraries hold as a text, "sm_75 sm_80 compute_80".
// Empty: this one does not.
std::vector<std::string> architecture_flags(ElfFile& library);

}  // namespace reelgrad
