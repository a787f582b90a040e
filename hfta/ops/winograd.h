#pragma once

#include "hfta/ops/convolution.h"

namespace hfta::ops {

/// A convolution of float images on the CPU with kernels of 3 x 3 and stride one, by Winograd's F(2 x 2, 3 x 3): 16 products for 36. Nothing for
/// any other.
std::optional<LaneTensor> winograd_convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                               const ConvolutionOptions& options, std::int64_t lanes);

/// Its gradients; arguments as in `convolution_backward`.
std::optional<ConvolutionGradients> winograd_convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                                  const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes);

}  // namespace hfta::ops
