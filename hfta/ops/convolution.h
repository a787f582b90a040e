#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Ways to compute a fused convolution and its gradients.
enum class ConvolutionLowering {
  Wide,     ///< Input shared: one convolution with lanes x out_channels outputs.
  Folded,   ///< Weight and bias shared: lanes folded into the batch.
  Product,  ///< Kernel of size one: matrix products over channels.
  Looped,   ///< One convolution per lane.
  Direct,   ///< Stride and dilation one, on the CPU: a kernel of ours for few channels and small images.
  Winograd,  ///< Floats, kernel of 3 x 3, stride one, on the CPU: a kernel of ours with 16 products for 36.
  Samples,  ///< Floats, stride and dilation one, on the CPU: a kernel of ours whose vectors run across samples.
  Grouped,  ///< One convolution with lanes x groups groups.
};
/// Every lowering, best guess first: the chooser times them, the tests compare them.
inline constexpr std::array kConvolutionLowerings{ConvolutionLowering::Wide, ConvolutionLowering::Folded, ConvolutionLowering::Product,
                                                  ConvolutionLowering::Looped, ConvolutionLowering::Direct, ConvolutionLowering::Winograd,
                                                  ConvolutionLowering::Samples, ConvolutionLowering::Grouped};
std::string_view name_of(ConvolutionLowering lowering);

/// How a convolution goes over its input; one entry per spatial axis (1 to 3) or one for all.
struct ConvolutionOptions {
  std::vector<std::int64_t> stride{1}, padding{0}, dilation{1};
  bool transposed = false;
  std::vector<std::int64_t> output_padding{0};
  std::int64_t groups = 1;
};

/// Each lane's convolution of `input` `[N, C, spatial...]` with `weight` `[O, C / groups, kernel...]` (transposed: `[C, O / groups,
/// kernel...]`) plus `bias` `[O]` or none. Nothing where the lowering does not take these arguments.
std::optional<LaneTensor> convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                      const ConvolutionOptions& options, std::int64_t lanes, ConvolutionLowering lowering);

/// Gradients with respect to input, weight and bias; those not asked for are empty.
using ConvolutionGradients = std::array<std::optional<LaneTensor>, 3>;

/// Each lane's gradients of `convolution`; `wanted` as `output_mask` of LibTorch.
std::optional<ConvolutionGradients> convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                         const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes,
                                                         ConvolutionLowering lowering);

}  // namespace hfta::ops
