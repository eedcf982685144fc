#include "reelgrad/kernels/weight_update.h"

#include <algorithm>

#include "reelgrad/kernels/cuda/device.h"
#include "reelgrad/kernels/weight_update_math.h"

namespace reelgrad::cuda {
namespace {

constexpr int kThreads = kSumLanes;

// As many as fit beside the other arguments in the 4 KiB that a launch passes on every driver; a network with more
// parameters takes several launches, whose blocks leave the others' tensors alone.
constexpr int kMostGradients = 440;

struct Gradients {
  int first = 0, count = 0;  // tensors
  const void* data[kMostGradients];
};

static_assert(sizeof(Gradients) + sizeof(UpdatePlan) + sizeof(UpdateTable) + 2 * sizeof(void*) <= 4096);

template <class Launch>
void with_gradients(GradientPointers gradients, Launch launch) {
  const int tensors = static_cast<int>(gradients.size());
  for (int first = 0; first < tensors; first += kMostGradients) {
    Gradients part{.first = first, .count = std::min(kMostGradients, tensors - first)};
    std::copy_n(gradients.begin() + first, part.count, part.data);
    launch(part);
  }
}

// The sum over the block's threads, in its first one; order as in weight_update_math.h.
__device__ double block_sum(double value) {
  __shared__ double lanes[kThreads];
  lanes[threadIdx.x] = value;
  for (int n = kThreads / 2; n > 0; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n) lanes[threadIdx.x] += lanes[threadIdx.x + n];
  }
  return lanes[0];
}

__device__ __forceinline__ std::int64_t end_of(const UpdateBlock& block, const UpdateTensor& tensor) {
  const std::int64_t end = block.begin + kUpdateBlock;
  return end < tensor.count ? end : tensor.count;
}

template <class Real>
__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(const UpdateTable table, const __grid_constant__ Gradients gradients, double* sums) {
  const UpdateBlock block = table.blocks[blockIdx.x];
  const int at = block.tensor - gradients.first;
  if (at < 0 || at >= gradients.count) return;
  const Real* gradient = static_cast<const Real*>(gradients.data[at]);
  double sum = 0;
  if (gradient) {
    const std::int64_t end = end_of(block, table.tensors[block.tensor]);
    for (std::int64_t i = block.begin + threadIdx.x; i < end; i += kThreads) {
      const double g = gradient[i];
      sum += g * g;
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) decide_kernel(const __grid_constant__ UpdatePlan plan, const double* sums,
                                                          int count, UpdateProgress* progress, UpdateFactors* factors) {
  double sum = 0;
  for (int b = threadIdx.x; b < count; b += kThreads) sum += sums[b];
  sum = block_sum(sum);
  if (threadIdx.x == 0) decide_update(plan, sum, *progress, *factors);
}

template <UpdateRule rule, class Real>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ UpdatePlan plan, const UpdateTable table,
                  const __grid_constant__ Gradients gradients, const UpdateFactors* factors) {
  const UpdateBlock block = table.blocks[blockIdx.x];
  const int at = block.tensor - gradients.first;
  if (at < 0 || at >= gradients.count || factors->skip != 0) return;
  __shared__ RuleNumbers<Real> shared;  // a thread's worth of float64 for the whole block
  const UpdateTensor tensor = table.tensors[block.tensor];
  if (threadIdx.x == 0) shared = rule_numbers<Real>(plan, *factors, tensor);
  __syncthreads();
  const RuleNumbers<Real> n = shared;

  const Real* gradient = static_cast<const Real*>(gradients.data[at]);
  Real *parameter = static_cast<Real*>(tensor.parameter), *average = static_cast<Real*>(tensor.average);
  Real *state1 = static_cast<Real*>(tensor.state1), *state2 = static_cast<Real*>(tensor.state2);
  const bool averages = average && n.average_weight != Real{0};
  const std::int64_t end = end_of(block, tensor);
#pragma unroll 4
  for (std::int64_t i = block.begin + threadIdx.x; i < end; i += kThreads) {
    Weight<Real> weight{parameter[i], state1 ? state1[i] : Real{0}, state2 ? state2[i] : Real{0}};
    if (gradient) {
      apply_rule<rule>(n, gradient[i], weight);
      parameter[i] = weight.parameter;
      if (state1) state1[i] = weight.state1;
      if (state2) state2[i] = weight.state2;
    }
    if (averages) average[i] = moved_average(n, average[i], weight.parameter);
  }
}

}  // namespace

void sum_squares(const UpdateTable& table, GradientPointers gradients, double* sums, CUstream_st* stream) {
  with_real(table.element, [&](auto real) {
    with_gradients(gradients, [&](const Gradients& part) {
      sum_squares_kernel<decltype(real)><<<table.block_count, kThreads, 0, stream>>>(table, part, sums);
      check_launch("sum_squares");
    });
  });
}

void decide(const UpdatePlan& plan, std::span<const double> sums, UpdateProgress* progress, UpdateFactors* factors,
            CUstream_st* stream) {
  decide_kernel<<<1, kThreads, 0, stream>>>(plan, sums.data(), static_cast<int>(sums.size()), progress, factors);
  check_launch("decide");
}

void update(const UpdatePlan& plan, const UpdateTable& table, GradientPointers gradients, const UpdateFactors* factors,
            CUstream_st* stream) {
  with_real(table.element, [&](auto real) {
    with_rule(plan.rule, [&](auto rule) {
      with_gradients(gradients, [&](const Gradients& part) {
        update_kernel<decltype(rule)::value, decltype(real)>
            <<<table.block_count, kThreads, 0, stream>>>(plan, table, part, factors);
        check_launch("update");
      });
    });
  });
}

}  // namespace reelgrad::cuda
