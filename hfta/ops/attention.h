#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Attention of queries, keys and values `[N, heads, length, size]` with an additive mask that broadcasts to `[N, heads, length, length]`.
struct AttentionArguments {
  LaneTensor query, key, value;
  std::optional<LaneTensor> mask;
  bool causal = false;
  std::optional<double> scale;
};

struct AttentionOutput {
  LaneTensor output, log_sum;
};

/// Scaled dot product attention with the lanes folded into the batch (LibTorch's CPU kernel).
AttentionOutput attention(const AttentionArguments& arguments, std::int64_t lanes);

struct AttentionGradients {
  LaneTensor query, key, value;
};

AttentionGradients attention_backward(const LaneTensor& gradient, const AttentionArguments& arguments, const AttentionOutput& forward, std::int64_t lanes);

}  // namespace hfta::ops
