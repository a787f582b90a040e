#include <utility>

#include "hfta/ops/arguments.h"
#include "hfta/ops/convolution.h"
#include "hfta/ops/register.h"
#include "hfta/ops/rule.h"

namespace hfta::ops {
namespace {

using Results = std::optional<std::vector<LaneValue>>;

/// Options from `first` on: stride, padding, dilation, transposed, output_padding, groups.
ConvolutionOptions options_at(const Arguments& arguments, std::size_t first) {
  return {.stride = arguments.integers(first),
          .padding = arguments.integers(first + 1),
          .dilation = arguments.integers(first + 2),
          .transposed = arguments.plain(first + 3).toBool(),
          .output_padding = arguments.integers(first + 4),
          .groups = arguments.plain(first + 5).toInt()};
}

/// aten::convolution(input, weight, bias, options...)
Results forward_rule(const Arguments& arguments, ConvolutionLowering lowering) {
  if (arguments.size() != 9 || arguments.any_differs()) return std::nullopt;
  const auto input = arguments.tensor(0), weight = arguments.tensor(1);
  if (!input || !weight) return std::nullopt;
  auto result = convolution(*input, *weight, arguments.tensor(2), options_at(arguments, 3), arguments.lanes(), lowering);
  if (!result) return std::nullopt;
  return std::vector<LaneValue>{*std::move(result)};
}

/// aten::convolution_backward(grad_output, input, weight, bias_sizes, options..., output_mask)
Results backward_rule(const Arguments& arguments, ConvolutionLowering lowering) {
  if (arguments.size() != 11 || arguments.any_differs()) return std::nullopt;
  const auto grad_output = arguments.tensor(0), input = arguments.tensor(1), weight = arguments.tensor(2);
  if (!grad_output || !input || !weight) return std::nullopt;
  const auto mask = arguments.booleans(10);
  const auto gradients = convolution_backward(*grad_output, *input, *weight, options_at(arguments, 4), {mask[0], mask[1], mask[2]},
                                              arguments.lanes(), lowering);
  if (!gradients) return std::nullopt;
  std::vector<LaneValue> results;
  for (const auto& gradient : *gradients) results.push_back(gradient ? LaneValue(*gradient) : LaneValue(c10::IValue(at::Tensor())));
  return results;
}

}  // namespace

void register_convolution_rules() {
  OperatorRules forward{"aten::convolution", {}}, backward{"aten::convolution_backward", {}};
  for (const auto lowering : kConvolutionLowerings) {
    // Marked for the CPU, so that one lane takes it too: LibTorch's own kernels for this case are slow there only.
    const bool cpu_only = lowering == ConvolutionLowering::Product || lowering == ConvolutionLowering::Direct ||
                          lowering == ConvolutionLowering::Winograd;
    const auto run_forward = [=](const RuleContext& context, std::span<const LaneValue> values) {
      return forward_rule(Arguments(context, values), lowering);
    };
    const auto run_backward = [=](const RuleContext& context, std::span<const LaneValue> values) {
      return backward_rule(Arguments(context, values), lowering);
    };
    forward.lowerings.push_back({name_of(lowering), run_forward, cpu_only});
    backward.lowerings.push_back({name_of(lowering), run_backward, cpu_only});
  }
  add_rules(std::move(forward));
  add_rules(std::move(backward));
}

}  // namespace hfta::ops
