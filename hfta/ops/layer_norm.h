#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <vector>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Ways to compute a fused layer norm.
enum class LayerNormLowering {
  Fused,       ///< One kernel for all lanes with each lane's weight and bias. CPU only.
  Decomposed,  ///< LibTorch's operator without weights on all rows, then weights and bias.
};
inline constexpr std::array kLayerNormLowerings{LayerNormLowering::Fused, LayerNormLowering::Decomposed};

struct LayerNormArguments {
  LaneTensor input;
  std::int64_t dims;                       ///< How many trailing dimensions are normalized.
  std::optional<LaneTensor> weight, bias;  ///< Of the normalized shape.
};

struct LayerNormOutput {
  LaneTensor output, mean, inverse_std;
};

/// `(x - mean) / sqrt(var + eps) * weight + bias` over the trailing dimensions; `eps` one per lane.
std::optional<LayerNormOutput> layer_norm(const LayerNormArguments& arguments, const std::vector<double>& eps, std::int64_t lanes,
                                          LayerNormLowering lowering);

struct LayerNormGradients {
  std::optional<LaneTensor> input, weight, bias;
};

/// Gradients for `mask` = {input, weight, bias}.
std::optional<LayerNormGradients> layer_norm_backward(const LaneTensor& gradient, const LayerNormArguments& arguments, const LaneTensor& mean,
                                                      const LaneTensor& inverse_std, std::array<bool, 3> mask, std::int64_t lanes,
                                                      LayerNormLowering lowering);

}  // namespace hfta::ops
