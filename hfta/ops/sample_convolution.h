#pragma once

#include "hfta/ops/convolution.h"

namespace hfta::ops {

/// A 2-d convolution of floats, stride and dilation one, on the CPU, by a kernel of ours whose vectors run across samples
/// (`sample_convolution_kernel.h`). Nothing for any other.
std::optional<LaneTensor> sample_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                             const ConvolutionOptions& options, std::int64_t lanes);
/// Its gradients; arguments as in `convolution_backward`.
std::optional<ConvolutionGradients> sample_convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                                const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes);

/// The same with `hfta::rectified_max_pool2d` behind it: its two results.
std::optional<std::array<LaneTensor, 2>> pooled_sample_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                                                   const ConvolutionOptions& options, std::int64_t lanes);
/// @param which the second of these results.
std::optional<ConvolutionGradients> pooled_sample_convolution_backward(const LaneTensor& grad_output, const LaneTensor& which, const LaneTensor& input,
                                                                       const LaneTensor& weight, const ConvolutionOptions& options, std::array<bool, 3> wanted,
                                                                       std::int64_t lanes);

}  // namespace hfta::ops
