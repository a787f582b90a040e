#pragma once

#include "hfta/ops/convolution.h"

namespace hfta::ops {

/// A 2-d convolution of stride and dilation one on the CPU, by a kernel of ours that is made for few channels and small images, where
/// LibTorch's blocked kernels have too little to do. Nothing for any other.
std::optional<LaneTensor> direct_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                             const ConvolutionOptions& options, std::int64_t lanes);

/// Its gradients; arguments as in `convolution_backward`.
std::optional<ConvolutionGradients> direct_convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                                const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes);

}  // namespace hfta::ops
