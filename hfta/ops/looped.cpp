#include "hfta/ops/looped.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <string>

#include "hfta/base/error.h"

namespace hfta::ops {
namespace {

c10::IValue number_as(const c10::Scalar& number, const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return number_as(number, optional->getElementType());
  switch (type->kind()) {
    case c10::TypeKind::FloatType: return number.toDouble();
    case c10::TypeKind::IntType: return number.toLong();
    case c10::TypeKind::BoolType: return number.toBool();
    default: return c10::IValue(number);
  }
}

c10::IValue lane_value(const LaneValue& value, std::int64_t lane, const c10::TypePtr& type) {
  if (const auto* plain = std::get_if<c10::IValue>(&value)) return *plain;
  if (const auto* tensor = std::get_if<LaneTensor>(&value)) return lane_of(*tensor, lane);
  if (const auto* numbers = std::get_if<LaneNumbers>(&value)) return number_as(numbers->of_lane.at(lane), type);
  if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value)) {
    c10::List<at::Tensor> tensors;
    for (const auto& tensor : *list) tensors.push_back(lane_of(tensor, lane));
    return tensors;
  }
  c10::List<std::optional<at::Tensor>> tensors;
  for (const auto& tensor : std::get<std::vector<std::optional<LaneTensor>>>(value))
    tensors.push_back(tensor ? std::optional(lane_of(*tensor, lane)) : std::nullopt);
  return tensors;
}

/// The argument that a result is, where the operator returns what it wrote into.
std::optional<std::size_t> written_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (!result.alias_info() || !result.alias_info()->isWrite()) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i)
    if (const auto* alias = schema.arguments()[i].alias_info(); alias && *alias == *result.alias_info()) return i;
  return std::nullopt;
}

LaneValue stacked(const std::vector<c10::IValue>& of_lanes) {
  const auto& first = of_lanes.front();
  if (first.isTensor() && first.toTensor().defined()) {
    std::vector<at::Tensor> tensors;
    for (const auto& value : of_lanes) tensors.push_back(value.toTensor());
    // At width 1 a view serves, and saves the copy.
    return LaneTensor{tensors.size() == 1 ? tensors[0].unsqueeze(0) : at::stack(tensors), 0};
  }
  if (first.isTensorList()) {
    std::vector<LaneTensor> list;
    for (std::size_t i = 0; i < first.toTensorVector().size(); ++i) {
      std::vector<c10::IValue> element;
      for (const auto& value : of_lanes) element.emplace_back(value.toTensorVector()[i]);
      list.push_back(std::get<LaneTensor>(stacked(element)));
    }
    return list;
  }
  return first;
}

std::vector<LaneValue> gather_results(const c10::FunctionSchema& schema, const std::vector<torch::jit::Stack>& results, std::span<const LaneValue> arguments) {
  std::vector<LaneValue> gathered;
  for (std::size_t r = 0; r < schema.returns().size(); ++r) {
    if (const auto written = written_argument(schema, schema.returns()[r])) {
      gathered.push_back(arguments[*written]);
      continue;
    }
    std::vector<c10::IValue> of_lanes;
    for (const auto& result : results) of_lanes.push_back(result[r]);
    gathered.push_back(stacked(of_lanes));
  }
  return gathered;
}

std::optional<std::size_t> generator_argument(const c10::FunctionSchema& schema) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].name() == "generator") return i;
  return std::nullopt;
}

/// The overload that takes a generator, and where: `rand` -> `rand.generator`, `randint.low` -> `randint.low_generator`.
std::pair<c10::OperatorHandle, std::size_t> with_generator(const c10::OperatorHandle& op) {
  if (const auto place = generator_argument(op.schema())) return {op, *place};
  const auto& name = op.schema().operator_name();
  std::vector<std::string> overloads{name.overload_name.empty() ? "generator" : name.overload_name + "_generator"};
  if (const auto dtype = name.overload_name.find("_dtype"); dtype != std::string::npos)
    overloads.push_back(name.overload_name.substr(0, dtype) + "_generator_dtype");
  for (const auto& overload : overloads)
    if (const auto found = c10::Dispatcher::singleton().findSchema({name.name, overload}))
      if (const auto place = generator_argument(found->schema())) return {*found, *place};
  throw Unsupported(base::message("ops::draw_lanes: expected a random operator that takes a generator, got ", toString(name)));
}

}  // namespace

torch::jit::Stack lane_arguments(const c10::OperatorHandle& op, std::span<const LaneValue> arguments, std::int64_t lane) {
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < arguments.size(); ++i) stack.push_back(lane_value(arguments[i], lane, op.schema().arguments()[i].type()));
  return stack;
}

std::vector<LaneValue> loop_lanes(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> arguments) {
  std::vector<torch::jit::Stack> results;
  for (std::int64_t lane = 0; lane < context.lanes; ++lane) {
    results.push_back(lane_arguments(op, arguments, lane));
    op.callBoxed(results.back());
  }
  return gather_results(op.schema(), results, arguments);
}

std::vector<LaneValue> draw_lanes(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> arguments) {
  const auto [drawing, place] = with_generator(op);
  const auto& schema = op.schema();
  std::vector<torch::jit::Stack> results;
  for (std::int64_t lane = 0; lane < context.lanes; ++lane) {
    auto stack = lane_arguments(op, arguments, lane);
    std::vector<std::pair<at::Tensor, at::Tensor>> write_back;
    // Kernels draw in the order of memory, and some by another formula where it has gaps.
    for (std::size_t i = 0; i < stack.size(); ++i) {
      if (!stack[i].isTensor() || !stack[i].toTensor().defined() || stack[i].toTensor().is_non_overlapping_and_dense()) continue;
      const auto slice = stack[i].toTensor();
      stack[i] = slice.contiguous();
      if (const auto* alias = schema.arguments()[i].alias_info(); alias && alias->isWrite()) write_back.emplace_back(slice, stack[i].toTensor());
    }
    if (drawing == op) stack[place] = context.generators[lane];
    else stack.insert(stack.begin() + static_cast<std::ptrdiff_t>(place), context.generators[lane]);
    drawing.callBoxed(stack);
    for (auto& [slice, drawn] : write_back) slice.copy_(drawn);
    results.push_back(std::move(stack));
  }
  return gather_results(schema, results, arguments);
}

}  // namespace hfta::ops
