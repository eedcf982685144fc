#include "reelgrad/kernels/weight_update.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "reelgrad/kernels/weight_update_math.h"

namespace reelgrad::cpu {
namespace {

using Lanes = std::array<double, kSumLanes>;

double sum_of_lanes(Lanes lanes) {
  for (int n = kSumLanes / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  return lanes[0];
}

template <class Real>
double squares(const Real* gradient, std::int64_t count) {
  Lanes lanes{};
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
    for (int lane = 0; lane < kSumLanes; ++lane) {
      const double g = gradient[i + lane];
      lanes[lane] += g * g;
    }
  for (int lane = 0; i < count; ++i, ++lane) {
    const double g = gradient[i];
    lanes[lane] += g * g;
  }
  return sum_of_lanes(lanes);
}

struct Elements {
  const UpdateTensor& tensor;
  std::int64_t begin, count;
};

Elements elements_of(const UpdateTable& table, int block) {
  const UpdateBlock& at = table.blocks[block];
  const UpdateTensor& tensor = table.tensors[at.tensor];
  return {tensor, at.begin, std::min<std::int64_t>(kUpdateBlock, tensor.count - at.begin)};
}

template <class Real>
Real* from(void* data, std::int64_t begin) {
  return data ? static_cast<Real*>(data) + begin : nullptr;
}

template <UpdateRule rule, class Real>
void update_weights(const RuleNumbers<Real>& n, const Elements& part, const Real* __restrict gradient) {
  Real* __restrict parameter = from<Real>(part.tensor.parameter, part.begin);
  Real* __restrict state1 = from<Real>(part.tensor.state1, part.begin);
  Real* __restrict state2 = from<Real>(part.tensor.state2, part.begin);
  const auto pass = [&](auto has1, auto has2) {
    for (std::int64_t i = 0; i < part.count; ++i) {
      Weight<Real> weight{parameter[i], Real{0}, Real{0}};
      if constexpr (has1) weight.state1 = state1[i];
      if constexpr (has2) weight.state2 = state2[i];
      apply_rule<rule>(n, gradient[i], weight);
      parameter[i] = weight.parameter;
      if constexpr (has1) state1[i] = weight.state1;
      if constexpr (has2) state2[i] = weight.state2;
    }
  };
  if (state2) return pass(std::true_type{}, std::true_type{});
  if (state1) return pass(std::true_type{}, std::false_type{});
  pass(std::false_type{}, std::false_type{});
}

template <class Real>
void update_average(const RuleNumbers<Real>& n, const Elements& part) {
  const Real* __restrict parameter = from<Real>(part.tensor.parameter, part.begin);
  Real* __restrict average = from<Real>(part.tensor.average, part.begin);
  for (std::int64_t i = 0; i < part.count; ++i) average[i] = moved_average(n, average[i], parameter[i]);
}

}  // namespace

void sum_squares(const UpdateTable& table, GradientPointers gradients, int first, int last, double* sums) {
  with_real(table.element, [&](auto real) {
    using Real = decltype(real);
    for (int b = first; b < last; ++b) {
      const auto* gradient = static_cast<const Real*>(gradients[static_cast<std::size_t>(table.blocks[b].tensor)]);
      const Elements part = elements_of(table, b);
      sums[b] = gradient ? squares(gradient + part.begin, part.count) : 0;
    }
  });
}

void decide(const UpdatePlan& plan, std::span<const double> sums, UpdateProgress* progress, UpdateFactors* factors) {
  Lanes lanes{};
  for (std::size_t b = 0; b < sums.size(); ++b) lanes[b % kSumLanes] += sums[b];
  decide_update(plan, sum_of_lanes(lanes), *progress, *factors);
}

void update(const UpdatePlan& plan, const UpdateTable& table, GradientPointers gradients, const UpdateFactors* factors,
            int first, int last) {
  if (factors->skip != 0) return;
  with_real(table.element, [&](auto real) {
    using Real = decltype(real);
    with_rule(plan.rule, [&](auto rule) {
      for (int b = first; b < last; ++b) {
        const Elements part = elements_of(table, b);
        const auto* gradient = static_cast<const Real*>(gradients[static_cast<std::size_t>(table.blocks[b].tensor)]);
        const RuleNumbers<Real> n = rule_numbers<Real>(plan, *factors, part.tensor);
        if (gradient) update_weights<decltype(rule)::value>(n, part, gradient + part.begin);
        if (part.tensor.average && factors->average_weight != 0) update_average(n, part);
      }
    });
  });
}

}  // namespace reelgrad::cpu
