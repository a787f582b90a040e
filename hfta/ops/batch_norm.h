#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <vector>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Ways to compute a fused batch norm.
enum class BatchNormLowering {
  Fused,   ///< One kernel for all lanes, any place of the lane axis. CPU only.
  Folded,  ///< Lanes folded into channels: one operator over lanes x channels.
  Looped,  ///< LibTorch's operator once per lane.
};
inline constexpr std::array kBatchNormLowerings{BatchNormLowering::Fused, BatchNormLowering::Folded, BatchNormLowering::Looped};

/// What batch norm keeps beside its input `[N, C, ...]`; each `[C]`, absent where the layer has none.
struct BatchNormState {
  std::optional<LaneTensor> weight, bias, running_mean, running_var;
};

struct BatchNormOptions {
  bool training = true;          ///< Statistics of the batch; false: the running ones.
  std::vector<double> momentum;  ///< One per lane.
  std::vector<double> eps;       ///< One per lane.
};

struct BatchNormOutput {
  LaneTensor output, mean, inverse_std;
};

/// `(x - mean) / sqrt(var + eps) * weight + bias` per channel and lane; in training the lane's running statistics are updated in place.
/// Nothing where the lowering does not take the arguments.
std::optional<BatchNormOutput> batch_norm(const LaneTensor& input, const BatchNormState& state, const BatchNormOptions& options, std::int64_t lanes,
                                          BatchNormLowering lowering);

/// What the backward pass needs of the forward one.
struct BatchNormSaved {
  std::optional<LaneTensor> mean, inverse_std;  ///< Of the batch; not used in evaluation.
};

/// What a backward pass is given.
struct BatchNormBackward {
  LaneTensor gradient, input;
  BatchNormState state;
  BatchNormSaved saved;
  BatchNormOptions options;
  std::array<bool, 3> mask{true, true, true};  ///< Gradients wanted: input, weight, bias.
};

struct BatchNormGradients {
  std::optional<LaneTensor> input, weight, bias;
};

/// Gradients of `batch_norm`.
std::optional<BatchNormGradients> batch_norm_backward(const BatchNormBackward& arguments, std::int64_t lanes, BatchNormLowering lowering);

}  // namespace hfta::ops
