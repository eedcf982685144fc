#include "reelgrad/engine/card_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/frames/gpu_plane_import.h"

namespace reelgrad {
namespace {

TEST(CardTrial, NamesACardThatIsNotThere) {
  const std::string uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  try {
    try_card(uuid);
    FAIL() << "no card has that name";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_THAT(error.what(), testing::HasSubstr(uuid));
  }
}

TEST(CardTrialGpu, ComputesRightAndQuickly) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a CUDA card";
  const TrialFigures figures = try_card(card_text(*card_of(torch::Device(torch::kCUDA, 0))));
  // From a GTX 1650 to what no card of 2026 reaches.
  EXPECT_GT(figures.half_matmul_tflops, 1);
  EXPECT_LT(figures.half_matmul_tflops, 5000);
  EXPECT_GT(figures.half_convolution_tflops, 0.5);
  EXPECT_LT(figures.half_convolution_tflops, 5000);
}

}  // namespace
}  // namespace reelgrad
