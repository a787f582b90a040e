#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "hfta/base/parallel.h"
#include "hfta/ops/lane_tensor.h"
#include "hfta/ops/turned_rows.h"
#include "hfta/ops/vector_math.h"

// The loss of a classifier and its gradient in one pass: the rows of exponents are in registers once.

namespace hfta::ops {
namespace {

using at::Tensor;

/// One lane: logits `[samples, classes]`, contiguous, as the gradient.
template <typename T>
struct Classifier {
  const T* logits;
  const std::int64_t* target;
  std::int64_t target_stride;
  const T* weight;  ///< Of each class, or null.
  std::int64_t samples, classes, ignored;
  bool mean;
  T* gradient;
};

/// What one vector of samples counts, and for which class; none where the target is to be ignored.
template <typename T>
struct Targets {
  alignas(64) T weight[Wide<T>::kSize];
  alignas(64) T chosen[Wide<T>::kSize];  ///< The class, as a number of the vectors' type.
};

template <typename T>
HFTA_INLINE double total_weight_of(const Classifier<T>& of) {
  double total = 0;
  for (std::int64_t n = 0; n < of.samples; ++n) {
    const auto t = of.target[n * of.target_stride];
    if (t == of.ignored) continue;
    TORCH_CHECK_INDEX(t >= 0 && t < of.classes, "Target ", t, " is out of bounds.");
    total += of.weight ? of.weight[t] : T(1);
  }
  return total;
}

template <typename T>
HFTA_INLINE void read_targets(const Classifier<T>& of, std::int64_t first, std::int64_t count, Targets<T>& targets) {
  for (std::int64_t r = 0; r < Wide<T>::kSize; ++r) {
    const auto t = r < count ? of.target[(first + r) * of.target_stride] : of.ignored;
    const bool counts = t != of.ignored;
    targets.chosen[r] = counts ? static_cast<T>(t) : T(-1);
    targets.weight[r] = !counts ? T(0) : of.weight ? of.weight[t] : T(1);
  }
}

/// Writes the gradients of a block of samples over their logits; returns the sum of their losses.
template <typename T>
HFTA_INLINE double differentiate(TurnedRows<T>& block, std::int64_t classes, const Targets<T>& targets, T factor) {
  using Vector = typename Wide<T>::Vector;
  Vector weight, chosen, largest = block.values[0], sum{}, of_target{};
  load(weight, targets.weight), load(chosen, targets.chosen);
  for (std::int64_t c = 1; c < classes; ++c) largest = larger<T>(block.values[c], largest);
  for (std::int64_t c = 0; c < classes; ++c) {
    const Vector below = block.values[c] - largest;
    of_target = chosen == static_cast<T>(c) ? below : of_target;
    block.values[c] = exp_of_negative<T>(below);
    sum += block.values[c];
  }
  alignas(64) T losses[Wide<T>::kSize];
  const auto counts = chosen >= T(0);
  store(losses, Vector(counts ? weight * (log_of_sum<T>(sum) - of_target) : Vector{}));
  const Vector scale = counts ? weight * factor : Vector{}, share = scale / sum;
  for (std::int64_t c = 0; c < classes; ++c) block.values[c] = block.values[c] * share - (chosen == static_cast<T>(c) ? scale : Vector{});
  double total = 0;
  for (const T loss : losses) total += loss;
  return total;
}

template <typename T>
HFTA_INLINE std::pair<double, double> run_lane(const Classifier<T>& of) {
  const double total = total_weight_of(of);
  const T factor = of.mean ? static_cast<T>(1) / static_cast<T>(total) : T(1);
  double loss = 0;
  TurnedRows<T> block;
  Targets<T> targets;
  for (std::int64_t n = 0; n < of.samples; n += block.kRows) {
    const auto count = std::min(block.kRows, of.samples - n);
    read_targets(of, n, count, targets);
    block.load(of.logits + n * of.classes, count, of.classes, (of.samples - n) * of.classes);
    loss += differentiate(block, of.classes, targets, factor);
    block.store(of.gradient + n * of.classes, count, of.classes);
  }
  return {of.mean ? loss / total : loss, total};
}

// Function multiversioning does not go with templates.
HFTA_VECTOR_TARGETS std::pair<double, double> cross_entropy_of(const Classifier<float>& of) { return run_lane(of); }
HFTA_VECTOR_TARGETS std::pair<double, double> cross_entropy_of(const Classifier<double>& of) { return run_lane(of); }

using Outputs = std::tuple<Tensor&, Tensor&, Tensor&>;

Outputs cross_entropy_out(const Tensor& given, const Tensor& target, const std::optional<Tensor>& weight, std::int64_t reduction, std::int64_t ignore_index, Tensor& loss,
                          Tensor& total_weight, Tensor& gradient) {
  const auto logits = given.contiguous();
  const auto lanes = logits.dim() == 3 ? logits.size(0) : 1, samples = logits.size(-2), classes = logits.size(-1);
  TORCH_CHECK(classes <= kMostClasses, "hfta::cross_entropy_rows: expected at most ", kMostClasses, " classes, got ", classes);
  const auto of_classes = weight && weight->defined() ? std::optional(weight->contiguous()) : std::nullopt;
  const auto run = [&]<typename T>(T) {
    T *losses = loss.mutable_data_ptr<T>(), *totals = total_weight.mutable_data_ptr<T>();
    base::parallel_for(0, lanes, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, samples * classes)), [&](std::int64_t first, std::int64_t last) {
      for (auto lane = first; lane < last; ++lane) {
        const auto [own, total] = cross_entropy_of({lane_data<T>(logits, 2, lane), lane_data<std::int64_t>(target, 1, lane), target.stride(-1),
                                                    of_classes ? lane_data<T>(*of_classes, 1, lane) : nullptr, samples, classes, ignore_index,
                                                    reduction == at::Reduction::Mean, gradient.mutable_data_ptr<T>() + lane * samples * classes});
        losses[lane] = static_cast<T>(own), totals[lane] = static_cast<T>(total);
      }
    });
  };
  logits.scalar_type() == at::kFloat ? run(float()) : run(double());
  return {loss, total_weight, gradient};
}

std::tuple<Tensor, Tensor, Tensor> cross_entropy_new(const Tensor& logits, const Tensor& target, const std::optional<Tensor>& weight, std::int64_t reduction,
                                                     std::int64_t ignore_index) {
  const auto numbers = logits.sizes().slice(0, logits.dim() - 2);
  auto loss = at::empty(numbers, logits.options()), total_weight = at::empty(numbers, logits.options()), gradient = at::empty(logits.sizes(), logits.options());
  cross_entropy_out(logits, target, weight, reduction, ignore_index, loss, total_weight, gradient);
  return {loss, total_weight, gradient};
}

}  // namespace
}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  // Logits `[N, C]` or `[lanes, N, C]` of at most kMostClasses classes; target `[N]` or `[lanes, N]`, weight `[C]` or `[lanes, C]`.
  // The loss (mean or sum) and the weights' sum `[]` or `[lanes]`, and the loss's gradient by the logits.
  library.def("cross_entropy_rows(Tensor logits, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor loss, Tensor total_weight, Tensor gradient)");
  library.def(
      "cross_entropy_rows.out(Tensor logits, Tensor target, Tensor? weight, int reduction, int ignore_index, *, Tensor(a!) loss, Tensor(b!) total_weight, Tensor(c!) gradient) "
      "-> (Tensor(a!), Tensor(b!), Tensor(c!))");
  library.impl("cross_entropy_rows", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::cross_entropy_new));
  library.impl("cross_entropy_rows.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::cross_entropy_out));
}
