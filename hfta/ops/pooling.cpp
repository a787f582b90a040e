#include "hfta/ops/pooling.h"

#include <ATen/core/stack.h>

#include <algorithm>
#include <utility>

#include "hfta/ops/layout.h"
#include "hfta/ops/max_pool2d.h"

namespace hfta::ops {
namespace {

/// Our operator with the same schema, or nothing.
std::optional<c10::OperatorHandle> own_twin(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  auto& dispatcher = c10::Dispatcher::singleton();
  if (name == "aten::max_pool2d_with_indices") return dispatcher.findSchema({kMaxPool2d, ""});
  if (name == "aten::max_pool2d_with_indices_backward") return dispatcher.findSchema({kMaxPool2dBackward, ""});
  return std::nullopt;
}

/// The lane value's axis that the lanes are folded into: its channels where the lane axis lies just before them, else its first.
std::int64_t folded_axis(std::span<const LaneValue> arguments, std::int64_t spatial) {
  for (const auto& argument : arguments) {
    const auto* tensor = std::get_if<LaneTensor>(&argument);
    if (tensor != nullptr && tensor->axis) return *tensor->axis == 1 && tensor->lane_dim() == spatial + 2 ? 1 : 0;
  }
  return 0;
}

bool takes(const LaneValue& argument, std::int64_t spatial) {
  if (std::holds_alternative<c10::IValue>(argument)) return true;
  const auto* tensor = std::get_if<LaneTensor>(&argument);
  return tensor != nullptr && (tensor->lane_dim() == spatial + 1 || tensor->lane_dim() == spatial + 2);
}

bool on_our_kernel(std::span<const LaneValue> arguments) {
  return std::ranges::all_of(arguments, [](const LaneValue& argument) {
    const auto* tensor = std::get_if<LaneTensor>(&argument);
    return tensor == nullptr || tensor->tensor.scalar_type() == at::kLong || max_pool2d_takes(tensor->tensor);
  });
}

}  // namespace

std::string_view name_of(PoolingLowering lowering) {
  switch (lowering) {
    case PoolingLowering::Direct: return "direct";
    case PoolingLowering::Native: return "native";
  }
  return "";
}

std::optional<std::vector<LaneValue>> pooling(const c10::OperatorHandle& op, std::span<const LaneValue> arguments, std::int64_t lanes,
                                              std::int64_t spatial, PoolingLowering lowering) {
  if (arguments.size() != op.schema().arguments().size()) return std::nullopt;
  if (!std::ranges::all_of(arguments, [=](const LaneValue& argument) { return takes(argument, spatial); })) return std::nullopt;
  auto called = std::optional(op);
  if (lowering == PoolingLowering::Direct) {
    called = own_twin(op);
    if (!called || !on_our_kernel(arguments)) return std::nullopt;
  }
  const auto axis = folded_axis(arguments, spatial);
  torch::jit::Stack stack;
  for (const auto& argument : arguments) {
    const auto* tensor = std::get_if<LaneTensor>(&argument);
    stack.push_back(tensor != nullptr ? c10::IValue(fold_lanes(*tensor, lanes, axis)) : std::get<c10::IValue>(argument));
  }
  called->callBoxed(stack);
  std::vector<LaneValue> results;
  for (auto& value : stack) results.emplace_back(unfold_lanes(std::move(value).toTensor(), lanes, axis));
  return results;
}

}  // namespace hfta::ops
