#include "reelgrad/nn/initialisation.h"

#include <torch/library.h>
#include <torch/types.h>

#include <optional>

namespace reelgrad {
namespace {

// PyTorch keeps this key for others' use: every operation passes it by, but for those below.
constexpr c10::DispatchKey kSkipping = c10::DispatchKey::TESTING_ONLY_GenericMode;

torch::Tensor& skip_filling(torch::Tensor& self, double, double, std::optional<torch::Generator>) {
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("uniform_", skip_filling);
  library.impl("normal_", skip_filling);
}

WithoutInitialisation::WithoutInitialisation() : skipping_(kSkipping) {}

bool initialisation_is_skipped() {
  return c10::impl::tls_is_dispatch_key_included(kSkipping);
}

}  // namespace reelgrad
