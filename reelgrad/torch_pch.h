// Precompiled once for every folder below kernels/: LibTorch's headers cost 12-19 s a translation unit otherwise.
#pragma once
#include <torch/torch.h>
