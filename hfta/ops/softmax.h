#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Rows that LibTorch's own kernel computes element by element, since they are shorter than a vector: ours is up to ten times as fast there,
/// and slower from a vector on.
inline constexpr std::int64_t kMostClasses = 15;

/// Ways to compute a fused softmax.
enum class SoftmaxLowering {
  Fused,    ///< One kernel over all rows of all lanes, along a last dimension of at most `kMostClasses`. CPU only.
  Batched,  ///< LibTorch's operator on all lanes.
};
inline constexpr std::array kSoftmaxLowerings{SoftmaxLowering::Fused, SoftmaxLowering::Batched};

enum class SoftmaxFunction {
  Softmax,
  LogSoftmax,
  SafeSoftmax,  ///< Zeros where all of a row is -inf.
};

/// Along dimension `dim` of the lane's value. Nothing where the lowering does not take the arguments.
std::optional<LaneTensor> softmax(const LaneTensor& input, std::int64_t dim, SoftmaxFunction function, SoftmaxLowering lowering);

/// Gradient of the input, from the output.
std::optional<LaneTensor> softmax_backward(const LaneTensor& gradient, const LaneTensor& output, std::int64_t dim, SoftmaxFunction function,
                                           std::int64_t lanes, SoftmaxLowering lowering);

}  // namespace hfta::ops
