#pragma once

#include "hfta/ops/convolution.h"

namespace hfta::ops {

/// A convolution whose kernel has size one, as products over channels: `[O, C] @ [N, C, positions]`. Nothing for any other.
std::optional<LaneTensor> convolution_product(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                              const ConvolutionOptions& options, std::int64_t lanes);

/// Its gradients; arguments as in `convolution_backward`.
std::optional<ConvolutionGradients> convolution_product_backward(const LaneTensor& grad_output, const LaneTensor& input,
                                                                 const LaneTensor& weight, const ConvolutionOptions& options,
                                                                 std::array<bool, 3> wanted, std::int64_t lanes);

}  // namespace hfta::ops
