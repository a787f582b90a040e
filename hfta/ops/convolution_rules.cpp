#include <utility>

#include "hfta/ops/convolution_arguments.h"
#include "hfta/ops/register.h"
#include "hfta/ops/rule.h"

namespace hfta::ops {
namespace {

using Results = std::optional<std::vector<LaneValue>>;

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
  return results_of(*gradients);
}

}  // namespace

void register_convolution_rules() {
  OperatorRules forward{"aten::convolution", {}}, backward{"aten::convolution_backward", {}};
  for (const auto lowering : kConvolutionLowerings) {
    const bool cpu_only = is_for_cpu(lowering);
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
