#pragma once
#include <string>
#include <vector>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad {

// `kernel`: the running one's release, whose modules are looked for on the disk.
KernelModuleFacts probe_kernel_modules(const RootFiles& files, const std::string& kernel);

// The error numbers of "NVRM: Xid (PCI:0000:01:00): 79, …" since the last start of the kernel that the log holds.
std::vector<int> xids_in(const std::string& log);

}  // namespace reelgrad
