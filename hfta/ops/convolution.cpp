#include "hfta/ops/convolution.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/stack.h>

#include "hfta/ops/convolution_product.h"
#include "hfta/ops/direct_convolution.h"
#include "hfta/ops/layout.h"
#include "hfta/ops/sample_convolution.h"
#include "hfta/ops/winograd.h"

namespace hfta::ops {
namespace {

at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, const ConvolutionOptions& options,
                    std::int64_t groups) {
  return at::convolution(input, weight, bias, options.stride, options.padding, options.dilation, options.transposed, options.output_padding,
                         groups);
}

using Gradients = std::array<at::Tensor, 3>;

Gradients convolve_backward(const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, const ConvolutionOptions& options,
                            std::int64_t groups, std::array<bool, 3> wanted) {
  const std::array bias_sizes{grad_output.size(1)};
  auto [grad_input, grad_weight, grad_bias] =
      at::convolution_backward(grad_output, input, weight, wanted[2] ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt, options.stride,
                               options.padding, options.dilation, options.transposed, options.output_padding, groups, wanted);
  return {grad_input, grad_weight, grad_bias};
}

std::optional<at::Tensor> folded_bias(const std::optional<LaneTensor>& bias, std::int64_t lanes) {
  return bias ? std::optional(fold_lanes(*bias, lanes, 0)) : std::nullopt;
}

/// The weight's axis of output channels.
std::int64_t output_axis(const ConvolutionOptions& options) { return options.transposed ? 1 : 0; }

// ---- forward

std::optional<LaneTensor> wide(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                               const ConvolutionOptions& options, std::int64_t lanes) {
  if (!input.is_shared() || weight.is_shared() || options.groups != 1) return std::nullopt;
  const auto folded = fold_lanes(weight, lanes, output_axis(options));
  return unfold_lanes(convolve(input.tensor, folded, folded_bias(bias, lanes), options, 1), lanes, 1);
}

std::optional<LaneTensor> folded(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                 const ConvolutionOptions& options, std::int64_t lanes) {
  if (input.is_shared() || !weight.is_shared() || (bias && !bias->is_shared())) return std::nullopt;
  const auto order = batch_order(input);
  const auto plain_bias = bias ? std::optional(bias->tensor) : std::nullopt;
  return unfold_batch(convolve(fold_batch(input, lanes, order), weight.tensor, plain_bias, options, options.groups), lanes, order);
}

std::optional<LaneTensor> grouped(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                  const ConvolutionOptions& options, std::int64_t lanes) {
  const auto result = convolve(fold_lanes(input, lanes, 1), fold_lanes(weight, lanes, 0), folded_bias(bias, lanes), options, options.groups * lanes);
  return unfold_lanes(result, lanes, 1);
}

std::optional<LaneTensor> looped(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                 const ConvolutionOptions& options, std::int64_t lanes) {
  std::vector<at::Tensor> results;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const auto lane_bias = bias ? std::optional(lane_of(*bias, lane)) : std::nullopt;
    results.push_back(convolve(lane_of(input, lane), lane_of(weight, lane), lane_bias, options, options.groups));
  }
  return LaneTensor{lanes == 1 ? results[0].unsqueeze(0) : at::stack(results), 0};
}

// ---- backward

std::optional<ConvolutionGradients> wide_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                  const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  // The wide convolution's input gradient is the sum over lanes, which nobody asks for.
  if (!input.is_shared() || options.groups != 1 || wanted[0]) return std::nullopt;
  const auto axis = output_axis(options);
  const auto gradients =
      convolve_backward(fold_lanes(grad_output, lanes, 1), input.tensor, fold_lanes(weight, lanes, axis), options, 1, wanted);
  ConvolutionGradients results;
  if (wanted[1]) results[1] = unfold_lanes(gradients[1], lanes, axis);
  if (wanted[2]) results[2] = unfold_lanes(gradients[2], lanes, 0);
  return results;
}

std::optional<ConvolutionGradients> folded_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                    const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  // Gradients of weight and bias are sums over the batch, which holds all lanes here.
  if (!weight.is_shared() || wanted[1] || wanted[2]) return std::nullopt;
  const auto order = batch_order(grad_output);
  const auto gradients = convolve_backward(fold_batch(grad_output, lanes, order), fold_batch(input, lanes, order), weight.tensor, options,
                                           options.groups, wanted);
  ConvolutionGradients results;
  if (wanted[0]) results[0] = unfold_batch(gradients[0], lanes, order);
  return results;
}

std::optional<ConvolutionGradients> grouped_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                     const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  const auto gradients = convolve_backward(fold_lanes(grad_output, lanes, 1), fold_lanes(input, lanes, 1), fold_lanes(weight, lanes, 0),
                                           options, options.groups * lanes, wanted);
  ConvolutionGradients results;
  if (wanted[0]) results[0] = unfold_lanes(gradients[0], lanes, 1);
  if (wanted[1]) results[1] = unfold_lanes(gradients[1], lanes, 0);
  if (wanted[2]) results[2] = unfold_lanes(gradients[2], lanes, 0);
  return results;
}

std::optional<ConvolutionGradients> looped_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                    const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes) {
  std::array<std::vector<at::Tensor>, 3> of_lanes;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const auto gradients =
        convolve_backward(lane_of(grad_output, lane), lane_of(input, lane), lane_of(weight, lane), options, options.groups, wanted);
    for (std::size_t i = 0; i < gradients.size(); ++i) of_lanes[i].push_back(gradients[i]);
  }
  ConvolutionGradients results;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (wanted[i]) results[i] = LaneTensor{lanes == 1 ? of_lanes[i][0].unsqueeze(0) : at::stack(of_lanes[i]), 0};
  }
  return results;
}

bool shapes_fit(const LaneTensor& input, const LaneTensor& weight) {
  return input.lane_dim() >= 3 && input.lane_dim() <= 5 && weight.lane_dim() == input.lane_dim();
}

}  // namespace

std::string_view name_of(ConvolutionLowering lowering) {
  switch (lowering) {
    case ConvolutionLowering::Wide: return "wide";
    case ConvolutionLowering::Folded: return "folded";
    case ConvolutionLowering::Product: return "product";
    case ConvolutionLowering::Looped: return "looped";
    case ConvolutionLowering::Direct: return "direct";
    case ConvolutionLowering::Winograd: return "winograd";
    case ConvolutionLowering::Samples: return "samples";
    case ConvolutionLowering::Grouped: return "grouped";
  }
  return "";
}

std::optional<LaneTensor> convolution(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                      const ConvolutionOptions& options, std::int64_t lanes, ConvolutionLowering lowering) {
  if (!shapes_fit(input, weight) || (bias && bias->lane_dim() != 1)) return std::nullopt;
  switch (lowering) {
    case ConvolutionLowering::Wide: return wide(input, weight, bias, options, lanes);
    case ConvolutionLowering::Folded: return folded(input, weight, bias, options, lanes);
    case ConvolutionLowering::Product: return convolution_product(input, weight, bias, options, lanes);
    case ConvolutionLowering::Looped: return looped(input, weight, bias, options, lanes);
    case ConvolutionLowering::Direct: return direct_convolution(input, weight, bias, options, lanes);
    case ConvolutionLowering::Winograd: return winograd_convolution(input, weight, bias, options, lanes);
    case ConvolutionLowering::Samples: return sample_convolution(input, weight, bias, options, lanes);
    case ConvolutionLowering::Grouped: return grouped(input, weight, bias, options, lanes);
  }
  return std::nullopt;
}

std::optional<ConvolutionGradients> convolution_backward(const LaneTensor& grad_output, const LaneTensor& input, const LaneTensor& weight,
                                                         const ConvolutionOptions& options, std::array<bool, 3> wanted, std::int64_t lanes,
                                                         ConvolutionLowering lowering) {
  if (!shapes_fit(input, weight) || grad_output.lane_dim() != input.lane_dim()) return std::nullopt;
  switch (lowering) {
    case ConvolutionLowering::Wide: return wide_backward(grad_output, input, weight, options, wanted, lanes);
    case ConvolutionLowering::Folded: return folded_backward(grad_output, input, weight, options, wanted, lanes);
    case ConvolutionLowering::Product: return convolution_product_backward(grad_output, input, weight, options, wanted, lanes);
    case ConvolutionLowering::Looped: return looped_backward(grad_output, input, weight, options, wanted, lanes);
    case ConvolutionLowering::Direct: return direct_convolution_backward(grad_output, input, weight, options, wanted, lanes);
    case ConvolutionLowering::Winograd: return winograd_convolution_backward(grad_output, input, weight, options, wanted, lanes);
    case ConvolutionLowering::Samples: return sample_convolution_backward(grad_output, input, weight, options, wanted, lanes);
    case ConvolutionLowering::Grouped: return grouped_backward(grad_output, input, weight, options, wanted, lanes);
  }
  return std::nullopt;
}

}  // namespace hfta::ops
