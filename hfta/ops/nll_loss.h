#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Ways to compute a fused negative log likelihood.
enum class NllLossLowering {
  Fused,   ///< One kernel for all lanes, any layout. CPU only.
  Folded,  ///< Lanes folded into the batch without reduction, then reduced per lane.
};
inline constexpr std::array kNllLossLowerings{NllLossLowering::Fused, NllLossLowering::Folded};

/// Beside the log probabilities `[N, C]`, `[C]` or `[N, C, d1, ...]`: targets of the same shape without C, class weights `[C]` or none.
struct NllLossArguments {
  LaneTensor log_probabilities, target;
  std::optional<LaneTensor> weight;
  std::int64_t reduction;  ///< `at::Reduction`.
  std::int64_t ignore_index;
};

struct NllLossOutput {
  LaneTensor loss;          ///< One number per lane, or with no reduction the targets' shape.
  LaneTensor total_weight;  ///< One number per lane: the sum of the weights of the targets that count.
};

/// `-weight[target] * log_probabilities[target]`, each lane reduced by itself. Nothing where the lowering does not take the arguments.
std::optional<NllLossOutput> nll_loss(const NllLossArguments& arguments, std::int64_t lanes, NllLossLowering lowering);

/// Gradient of the log probabilities.
std::optional<LaneTensor> nll_loss_backward(const LaneTensor& gradient, const NllLossArguments& arguments, const LaneTensor& total_weight,
                                            std::int64_t lanes, NllLossLowering lowering);

}  // namespace hfta::ops
