#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include "hfta/ops/convolution_arguments.h"
#include "hfta/ops/rectified_pool.h"
#include "hfta/ops/register.h"
#include "hfta/ops/sample_convolution.h"

// What `lanes::merged` makes of a convolution, the ReLU and the max pooling behind it, and of their gradients. By themselves they are
// LibTorch's convolution and `hfta::rectified_max_pool2d`.

namespace hfta::ops {
namespace {

using at::Tensor;
using Results = std::optional<std::vector<LaneValue>>;
using Pooled = std::tuple<Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

Pooled forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
               bool transposed, at::IntArrayRef output_padding, std::int64_t groups) {
  return rectified_max_pool2d(at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups));
}

Gradients backward(const Tensor& grad_output, const Tensor& which, const Tensor& input, const Tensor& weight, at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> output_mask,
                   at::IntArrayRef size) {
  return at::convolution_backward(rectified_max_pool2d_backward(grad_output, which, size), input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
                                  output_mask);
}

/// (input, weight, bias, options...)
Results forward_rule(const Arguments& arguments, ConvolutionLowering lowering) {
  if (arguments.any_differs()) return std::nullopt;
  const auto input = arguments.required(0), weight = arguments.required(1);
  const auto options = options_at(arguments, 3);
  if (lowering == ConvolutionLowering::Samples) {
    const auto results = pooled_sample_convolution(input, weight, arguments.tensor(2), options, arguments.lanes());
    return results ? Results({(*results)[0], (*results)[1]}) : std::nullopt;
  }
  const auto images = convolution(input, weight, arguments.tensor(2), options, arguments.lanes(), lowering);
  if (!images) return std::nullopt;
  const auto [out, which] = rectified_max_pool2d(lanes_first(*images, arguments.lanes()));
  return std::vector<LaneValue>{LaneTensor{out, 0}, LaneTensor{which, 0}};
}

/// (grad_output, which, input, weight, bias_sizes, options..., output_mask, size)
Results backward_rule(const Arguments& arguments, ConvolutionLowering lowering) {
  if (arguments.any_differs()) return std::nullopt;
  const auto grad_output = arguments.required(0), which = arguments.required(1), input = arguments.required(2), weight = arguments.required(3);
  const auto options = options_at(arguments, 5);
  const auto mask = arguments.booleans(11);
  const std::array<bool, 3> wanted{mask[0], mask[1], mask[2]};
  std::optional<ConvolutionGradients> gradients;
  if (lowering == ConvolutionLowering::Samples) {
    gradients = pooled_sample_convolution_backward(grad_output, which, input, weight, options, wanted, arguments.lanes());
  } else {
    const auto all = rectified_max_pool2d_backward(lanes_first(grad_output, arguments.lanes()), lanes_first(which, arguments.lanes()).contiguous(), arguments.integers(12));
    gradients = convolution_backward({all, 0}, input, weight, options, wanted, arguments.lanes(), lowering);
  }
  if (!gradients) return std::nullopt;
  return results_of(*gradients);
}

}  // namespace

void register_pooled_convolution_rules() {
  OperatorRules forward{"hfta::convolution_rectified_max_pool2d", {}}, backward{"hfta::convolution_rectified_max_pool2d_backward", {}};
  for (const auto lowering : kConvolutionLowerings) {
    const auto run_forward = [=](const RuleContext& context, std::span<const LaneValue> values) { return forward_rule(Arguments(context, values), lowering); };
    const auto run_backward = [=](const RuleContext& context, std::span<const LaneValue> values) { return backward_rule(Arguments(context, values), lowering); };
    forward.lowerings.push_back({name_of(lowering), run_forward, is_for_cpu(lowering)});
    backward.lowerings.push_back({name_of(lowering), run_backward, is_for_cpu(lowering)});
  }
  add_rules(std::move(forward));
  add_rules(std::move(backward));
}

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("convolution_rectified_max_pool2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, "
              "int groups) -> (Tensor, Tensor)",
              TORCH_FN(hfta::ops::forward));
  library.def("convolution_rectified_max_pool2d_backward(Tensor grad_output, Tensor which, Tensor input, Tensor weight, int[]? bias_sizes, int[] stride, int[] padding, "
              "int[] dilation, bool transposed, int[] output_padding, int groups, bool[3] output_mask, int[2] size) -> (Tensor, Tensor, Tensor)",
              TORCH_FN(hfta::ops::backward));
}
