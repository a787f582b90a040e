#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/layout.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using Results = std::optional<std::vector<LaneValue>>;

/// An operator whose batch entries are independent: lanes are folded into that axis of every tensor and out of the results'.
struct FoldedForm {
  const char* name;
  const char* overload;
  std::vector<std::int64_t> tensors;  ///< For each argument its batch axis; -1: not folded; `kRepeat`: an `int[]` repeated for each lane.
  std::vector<std::int64_t> results;  ///< For each result its batch axis.
  std::int64_t batch_sizes = -1;      ///< An argument that holds the input's sizes, whose first is the batch.
};
constexpr std::int64_t kRepeat = -2;

/// `int[]` of a batch for all lanes.
c10::IValue repeated(const std::vector<std::int64_t>& numbers, std::int64_t lanes) {
  std::vector<std::int64_t> all;
  for (std::int64_t lane = 0; lane < lanes; ++lane) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

Results run_folded(const c10::OperatorHandle& op, const FoldedForm& form, const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  if (arguments.any_differs()) return std::nullopt;
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto place = i < form.tensors.size() ? form.tensors[i] : -1;
    if (place >= 0) {
      const auto tensor = arguments.tensor(i);
      if (tensor && tensor->lane_dim() <= place) return std::nullopt;  // no batch axis
      stack.push_back(tensor ? c10::IValue(fold_lanes(*tensor, context.lanes, place)) : c10::IValue());
    } else if (place == kRepeat) {
      stack.push_back(repeated(arguments.integers(i), context.lanes));
    } else if (static_cast<std::int64_t>(i) == form.batch_sizes) {
      auto sizes = arguments.integers(i);
      sizes[0] *= context.lanes;
      stack.emplace_back(sizes);
    } else {
      stack.push_back(arguments.plain(i));
    }
  }
  op.callBoxed(stack);
  std::vector<LaneValue> results;
  for (std::size_t r = 0; r < form.results.size(); ++r) results.push_back(unfold_lanes(stack[r].toTensor(), context.lanes, form.results[r]));
  return results;
}

const std::vector<FoldedForm>& folded_forms() {
  static const std::vector<FoldedForm> all{
      {"aten::_upsample_nearest_exact1d", "", {0}, {0}}, {"aten::_upsample_nearest_exact2d", "", {0}, {0}}, {"aten::_upsample_nearest_exact3d", "", {0}, {0}},
      {"aten::_upsample_nearest_exact1d_backward", "", {0}, {0}, 2}, {"aten::_upsample_nearest_exact2d_backward", "", {0}, {0}, 2},
      {"aten::_upsample_nearest_exact3d_backward", "", {0}, {0}, 2}, {"aten::_upsample_lanczos2d_aa", "", {0}, {0}},
      {"aten::_upsample_lanczos2d_aa_backward", "", {0}, {0}, 2},
      // log_probs [T, N, C], targets [N, S], lengths [N]; losses [N], alphas [N, T, 2S + 1].
      {"aten::_ctc_loss", "", {1, 0, kRepeat, kRepeat}, {0, 0}}, {"aten::_ctc_loss", "Tensor", {1, 0, 0, 0}, {0, 0}},
      {"aten::_ctc_loss_backward", "", {0, 1, 0, kRepeat, kRepeat, 0, 0}, {1}}, {"aten::_ctc_loss_backward", "Tensor", {0, 1, 0, 0, 0, 0, 0}, {1}},
  };
  return all;
}

/// `_weight_norm_interface(v, g, dim)`: rows are independent where the first dimension is kept.
Results weight_norm(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> values, std::size_t tensors) {
  const Arguments arguments(context, values);
  if (arguments.plain(tensors).toInt() != 0) return std::nullopt;
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < tensors; ++i) stack.emplace_back(fold_lanes(arguments.required(i), context.lanes, 0).contiguous());
  stack.emplace_back(0);
  op.callBoxed(stack);
  return std::vector<LaneValue>{unfold_lanes(stack[0].toTensor(), context.lanes, 0), unfold_lanes(stack[1].toTensor(), context.lanes, 0)};
}

/// One call on lanes that lie in front of each tensor, dimensions counted behind them: `_trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim)`.
Results trilinear(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < 3; ++i) {
    stack.emplace_back(lanes_first_or_shared(arguments.required(i), context.lanes));
  }
  const auto shifted = [&](std::size_t index, bool lane_axis_too) {
    std::vector<std::int64_t> dims;
    if (lane_axis_too) dims.push_back(0);
    for (const auto dim : arguments.integers(index)) dims.push_back(dim + 1);
    return dims;
  };
  for (std::size_t i = 0; i < 3; ++i) stack.emplace_back(shifted(3 + i, arguments.required(i).is_shared()));
  stack.emplace_back(shifted(6, false));
  stack.emplace_back(arguments.plain(7).toInt() + 1);
  op.callBoxed(stack);
  return std::vector<LaneValue>{LaneTensor{stack[0].toTensor(), 0}};
}

}  // namespace

void register_folded_rules() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& form : folded_forms())
    if (const auto op = dispatcher.findSchema({form.name, form.overload}))
      add_rules({toString(op->operator_name()), {{"folded", [op = *op, &form](const RuleContext& context, std::span<const LaneValue> values) {
        return run_folded(op, form, context, values);
      }}}});
  for (const auto& [name, tensors] : {std::pair("aten::_weight_norm_interface", 2UL), std::pair("aten::_weight_norm_interface_backward", 4UL)}) {
    const auto op = dispatcher.findSchemaOrThrow(name, "");
    add_rules({name, {{"folded", [op, tensors = tensors](const RuleContext& context, std::span<const LaneValue> values) {
      return weight_norm(op, context, values, tensors);
    }}}});
  }
  const auto op = dispatcher.findSchemaOrThrow("aten::_trilinear", "");
  add_rules({"aten::_trilinear", {{"batched", [op](const RuleContext& context, std::span<const LaneValue> values) { return trilinear(op, context, values); }}}});
}

}  // namespace hfta::ops
