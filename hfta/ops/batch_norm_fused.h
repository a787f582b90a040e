#pragma once

#include "hfta/ops/batch_norm.h"

namespace hfta::ops {

/// The `Fused` lowering of `batch_norm` and its gradients; nothing where its kernel does not take the arguments.
std::optional<BatchNormOutput> batch_norm_fused(const LaneTensor& input, const BatchNormState& state, const BatchNormOptions& options, std::int64_t lanes);
std::optional<BatchNormGradients> batch_norm_backward_fused(const BatchNormBackward& arguments, std::int64_t lanes);

}  // namespace hfta::ops
