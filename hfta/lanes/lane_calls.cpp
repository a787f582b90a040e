#include "hfta/lanes/lane_calls.h"

#include <ATen/core/grad_mode.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/ops/stack.h>

namespace hfta::lanes {
namespace {

namespace ft = at::functorch;
using ops::LaneTensor;
using ops::LaneValue;
using program::Node;

/// LibTorch's batching layer for a scope.
class BatchingLevel {
 public:
  explicit BatchingLevel(std::int64_t lanes)
      : level_(ft::initAndPushDynamicLayer(ft::TransformType::Vmap, c10::SymInt(lanes), ft::RandomnessType::Different)) {}
  ~BatchingLevel() { ft::popDynamicLayerAndDeleteMetadata(); }
  BatchingLevel(const BatchingLevel&) = delete;
  BatchingLevel& operator=(const BatchingLevel&) = delete;
  LaneTensor unwrap(const at::Tensor& tensor) const {
    auto [physical, axis] = ft::unwrapTensorAtLevel(tensor, level_);
    return {physical, axis};
  }
  at::Tensor wrap(const LaneTensor& value) const { return value.axis ? ft::makeBatched(value.tensor, *value.axis, level_) : value.tensor; }

 private:
  std::int64_t level_;
};

template <typename Wrap>
c10::IValue stack_value(const LaneValue& value, const c10::Argument& formal, Wrap&& wrap) {
  if (const auto* tensor = std::get_if<LaneTensor>(&value)) return wrap(*tensor);
  if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value)) {
    c10::List<at::Tensor> tensors;
    for (const auto& tensor : *list) tensors.push_back(wrap(tensor));
    return tensors;
  }
  if (const auto* list = std::get_if<std::vector<std::optional<LaneTensor>>>(&value)) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const auto& tensor : *list) tensors.push_back(tensor ? std::optional(wrap(*tensor)) : std::nullopt);
    return tensors;
  }
  const auto& plain = std::get<c10::IValue>(value);
  if (plain.isNone() && formal.type()->kind() == c10::TypeKind::TensorType) return at::Tensor();
  return plain;
}

template <typename Wrap, typename Unwrap>
std::vector<LaneValue> call_with(const Node& node, const std::vector<LaneValue>& arguments, Wrap&& wrap, Unwrap&& unwrap) {
  torch::jit::Stack stack;
  const auto& formal = node.op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) stack.push_back(stack_value(arguments[i], formal[i], wrap));
  const at::AutoGradMode grad_mode(node.grad_mode);
  node.op.callBoxed(stack);
  std::vector<LaneValue> results;
  for (const auto& result : stack) {
    if (result.isTensor() && result.toTensor().defined()) {
      results.emplace_back(unwrap(result.toTensor()));
    } else if (result.isTensorList()) {
      std::vector<LaneTensor> list;
      for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(unwrap(tensor));
      results.emplace_back(std::move(list));
    } else {
      results.emplace_back(result.isTensor() ? c10::IValue() : result);
    }
  }
  return results;
}

LaneValue of_lane(const LaneValue& value, const program::Argument& recorded, std::int64_t lane, const std::vector<at::Generator>& generators) {
  if (const auto* numbers = std::get_if<ops::LaneNumbers>(&value)) return c10::IValue(numbers->of_lane[lane]);
  if (std::holds_alternative<program::LaneGenerator>(recorded)) return c10::IValue(generators.at(lane));
  const auto row = [&](const LaneTensor& tensor) { return LaneTensor{ops::lane_of(tensor, lane), std::nullopt}; };
  if (const auto* tensor = std::get_if<LaneTensor>(&value)) return row(*tensor);
  if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value)) {
    std::vector<LaneTensor> rows;
    for (const auto& tensor : *list) rows.push_back(row(tensor));
    return rows;
  }
  if (const auto* list = std::get_if<std::vector<std::optional<LaneTensor>>>(&value)) {
    std::vector<std::optional<LaneTensor>> rows;
    for (const auto& tensor : *list) rows.push_back(tensor ? std::optional(row(*tensor)) : std::nullopt);
    return rows;
  }
  return value;
}

/// Result `r` of all lanes.
LaneValue stacked(const std::vector<std::vector<LaneValue>>& results, std::size_t r) {
  if (std::holds_alternative<LaneTensor>(results[0][r])) {
    std::vector<at::Tensor> rows;
    for (const auto& lane : results) rows.push_back(std::get<LaneTensor>(lane[r]).tensor);
    return LaneTensor{at::stack(rows), 0};
  }
  if (const auto* list = std::get_if<std::vector<LaneTensor>>(&results[0][r])) {
    std::vector<LaneTensor> tensors;
    for (std::size_t k = 0; k < list->size(); ++k) {
      std::vector<at::Tensor> rows;
      for (const auto& lane : results) rows.push_back(std::get<std::vector<LaneTensor>>(lane[r])[k].tensor);
      tensors.push_back({at::stack(rows), 0});
    }
    return tensors;
  }
  return results[0][r];
}

}  // namespace

bool has_batching_rule(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::FuncTorchBatched) || op.hasKernelForDispatchKey(c10::DispatchKey::FuncTorchBatchedDecomposition);
}

std::vector<LaneValue> call(const Node& node, const std::vector<LaneValue>& arguments) {
  return call_with(
      node, arguments, [](const LaneTensor& value) { return value.tensor; }, [](const at::Tensor& tensor) { return LaneTensor{tensor, std::nullopt}; });
}

std::vector<LaneValue> call_batched(const Node& node, const std::vector<LaneValue>& arguments, std::int64_t lanes) {
  const BatchingLevel level(lanes);
  return call_with(
      node, arguments, [&](const LaneTensor& value) { return level.wrap(value); }, [&](const at::Tensor& tensor) { return level.unwrap(tensor); });
}

std::vector<LaneValue> call_per_lane(const Node& node, const std::vector<LaneValue>& arguments, const std::vector<at::Generator>& generators) {
  std::vector<std::vector<LaneValue>> results;
  for (std::int64_t lane = 0; lane < static_cast<std::int64_t>(generators.size()); ++lane) {
    std::vector<LaneValue> own;
    for (std::size_t i = 0; i < arguments.size(); ++i) own.push_back(of_lane(arguments[i], node.inputs[i], lane, generators));
    results.push_back(call(node, own));
  }
  std::vector<LaneValue> all;
  for (std::size_t r = 0; r < results[0].size(); ++r) all.push_back(is_written_argument(node.op.schema(), r) ? c10::IValue() : stacked(results, r));
  return all;
}

bool is_written_argument(const c10::FunctionSchema& schema, std::size_t index) {
  const auto& returns = schema.returns();
  return index < returns.size() && returns[index].alias_info() && returns[index].alias_info()->isWrite();
}

}  // namespace hfta::lanes
