#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/looped.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using Results = std::optional<std::vector<LaneValue>>;

/// An operator along one dimension that LibTorch's batching layer has no rule for: it runs once with the lanes in front, the dimension
/// counted behind them. All its tensors have the same number of dimensions.
struct AxisForm {
  const char* name;
  const char* overload;
  int dim;           ///< The argument that is the dimension; -1: none, it works on the last ones.
  int sizes = -1;    ///< An argument that holds sizes to be put behind the lanes.
};

constexpr AxisForm kAxisForms[]{
    {"aten::scatter_", "src", 1}, {"aten::scatter_", "value", 1}, {"aten::scatter_", "reduce", 1}, {"aten::scatter_", "value_reduce", 1},
    {"aten::cumsum_", "", 1}, {"aten::cumprod_", "", 1}, {"aten::tril_", "", -1}, {"aten::triu_", "", -1}, {"aten::unfold_backward", "", 2, 1},
    {"aten::_logcumsumexp", "", 1}};

Results along_axis(const c10::OperatorHandle& op, const AxisForm& form, const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  if (arguments.any_differs()) return std::nullopt;
  torch::jit::Stack stack;
  std::int64_t lane_dim = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::holds_alternative<LaneTensor>(values[i])) {
      stack.push_back(arguments.plain(i));
      continue;
    }
    const auto dim = arguments.required(i).lane_dim();
    if (lane_dim >= 0 && dim != lane_dim) return std::nullopt;
    lane_dim = dim;
    stack.emplace_back(arguments.lanes_first(i));
  }
  if (form.sizes >= 0) {
    auto sizes = arguments.integers(static_cast<std::size_t>(form.sizes));
    lane_dim = static_cast<std::int64_t>(sizes.size());
    sizes.insert(sizes.begin(), context.lanes);
    stack[static_cast<std::size_t>(form.sizes)] = sizes;
  }
  if (lane_dim == 0) return std::nullopt;
  if (form.dim >= 0) {
    auto& dim = stack[static_cast<std::size_t>(form.dim)];
    dim = (dim.toInt() + lane_dim) % lane_dim + 1;
  }
  op.callBoxed(stack);
  if (op.schema().is_mutable()) return std::vector<LaneValue>{values[0]};
  return std::vector<LaneValue>{LaneTensor{stack[0].toTensor(), 0}};
}

}  // namespace

void register_axis_rules() {
  for (const auto& form : kAxisForms) {
    const auto op = c10::Dispatcher::singleton().findSchema({form.name, form.overload});
    if (!op) continue;
    add_rules({toString(op->operator_name()), {{"lanes_first", [op = *op, &form](const RuleContext& context, std::span<const LaneValue> values) {
      return along_axis(op, form, context, values);
    }}}});
  }
}

}  // namespace hfta::ops
