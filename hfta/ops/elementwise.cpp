#include "hfta/ops/elementwise.h"

#include <ATen/core/stack.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <string>

#include "hfta/ops/arguments.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

/// The type that the lane's values have together; LibTorch lets one of no dimension give way, which a lane axis would hide.
std::optional<at::ScalarType> common_type(std::span<const std::optional<LaneTensor>> values) {
  std::vector<at::Tensor> of_lane;
  for (const auto& value : values)
    if (value) of_lane.push_back(lane_of(*value, 0));
  const auto same = [&](const at::Tensor& tensor) { return tensor.scalar_type() == of_lane.front().scalar_type(); };
  if (of_lane.empty() || std::all_of(of_lane.begin(), of_lane.end(), same)) return std::nullopt;
  auto type = of_lane.front().scalar_type();
  // Folding pairwise serves: operators whose types differ have two tensors, or a mask of booleans beside.
  for (std::size_t i = 1; i < of_lane.size(); ++i)
    if (of_lane[i].scalar_type() != at::kBool) type = type == at::kBool ? of_lane[i].scalar_type() : at::result_type(of_lane[i - 1], of_lane[i]);
  return type;
}

bool converts(at::ScalarType from, at::ScalarType to) {
  return from != to && ((at::isFloatingType(from) && at::isFloatingType(to)) || (at::isIntegralType(from, false) && at::isIntegralType(to, false)));
}

}  // namespace

std::vector<at::Tensor> aligned(std::span<const std::optional<LaneTensor>> values, std::int64_t lanes, bool in_place) {
  std::int64_t dim = 0;
  for (const auto& value : values)
    if (value) dim = std::max(dim, value->lane_dim());
  const auto type = common_type(values);
  std::vector<at::Tensor> tensors;
  for (const auto& value : values) {
    if (!value || value->is_shared()) {
      tensors.push_back(value ? value->tensor : at::Tensor());
      continue;
    }
    auto tensor = lanes_first(*value, lanes);
    const bool written = in_place && tensors.empty();
    if (type && !written && value->lane_dim() == 0 && converts(tensor.scalar_type(), *type)) tensor = tensor.to(*type);
    while (tensor.dim() < dim + 1) tensor = tensor.unsqueeze(1);
    tensors.push_back(tensor);
  }
  return tensors;
}

std::optional<std::vector<LaneValue>> elementwise(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  if (arguments.any_differs()) return std::nullopt;
  const auto& schema = op.schema();
  std::vector<std::size_t> places;
  std::vector<std::optional<LaneTensor>> tensors;
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (const auto* plain = std::get_if<c10::IValue>(&values[i]); plain && !plain->isTensor()) {
      stack.push_back(*plain);
      continue;
    }
    places.push_back(i);
    tensors.push_back(arguments.tensor(i));
    stack.emplace_back();
  }
  const auto physical = aligned(tensors, context.lanes, schema.is_mutable());
  for (std::size_t i = 0; i < places.size(); ++i) stack[places[i]] = physical[i];
  op.callBoxed(stack);
  std::vector<LaneValue> results;
  for (std::size_t r = 0; r < schema.returns().size(); ++r) {
    if (schema.is_mutable()) results.push_back(values[0]);
    else if (arguments.all_shared()) results.push_back(LaneTensor{stack[r].toTensor(), std::nullopt});
    else results.push_back(LaneTensor{stack[r].toTensor(), 0});
  }
  return results;
}

namespace {

/// `masked_fill(self, mask, value)` with a value of no dimension, which a lane axis would give one.
std::vector<LaneValue> masked_fill(const Arguments& arguments, bool in_place) {
  const std::vector<std::optional<LaneTensor>> values{arguments.required(0), arguments.required(1), arguments.required(2)};
  const auto tensors = aligned(values, arguments.lanes(), in_place);
  const auto filled = at::where(tensors[1], tensors[2].to(tensors[0].scalar_type()), tensors[0]);
  if (!in_place) return {LaneTensor{filled, arguments.all_shared() ? std::nullopt : std::optional<std::int64_t>(0)}};
  tensors[0].copy_(filled);
  return {arguments[0]};
}

}  // namespace

void register_elementwise_rules() {
  // Those that LibTorch's batching layer has no rule for; the others are left to it.
  const std::pair<const char*, std::vector<const char*>> operators[] = {
      {"aten::addcmul_", {""}}, {"aten::addcdiv_", {""}}, {"aten::lerp_", {"Scalar", "Tensor"}}, {"aten::clamp_", {"", "Tensor"}},
      {"aten::eq_", {"Scalar", "Tensor"}}, {"aten::ne_", {"Scalar", "Tensor"}}, {"aten::lt_", {"Scalar", "Tensor"}}, {"aten::le_", {"Scalar", "Tensor"}},
      {"aten::gt_", {"Scalar", "Tensor"}}, {"aten::ge_", {"Scalar", "Tensor"}}, {"aten::floor_divide_", {"Scalar", "Tensor"}},
      {"aten::fmod_", {"Scalar", "Tensor"}}, {"aten::remainder_", {"Scalar", "Tensor"}}, {"aten::div_", {"Scalar_mode"}}, {"aten::pow_", {"Tensor"}},
      {"aten::hypot_", {""}}, {"aten::nextafter_", {""}}, {"aten::heaviside_", {""}}, {"aten::ldexp_", {""}}, {"aten::xlogy_", {"Tensor", "Scalar_Other"}},
      {"aten::gelu_", {""}}, {"aten::conj_physical_", {""}}, {"aten::polygamma_", {""}}, {"aten::copy", {""}},
      {"aten::native_dropout_backward", {""}}, {"aten::_masked_scale", {""}}, {"aten::rrelu_with_noise_backward", {""}}, {"aten::_standard_gamma_grad", {""}}};
  for (const bool in_place : {false, true})
    add_rules({in_place ? "aten::masked_fill_.Tensor" : "aten::masked_fill.Tensor", {{"broadcast", [in_place](const RuleContext& context, std::span<const LaneValue> values) {
      return std::optional(masked_fill(Arguments(context, values), in_place));
    }}}});
  for (const auto& [name, overloads] : operators) {
    for (const char* overload : overloads) {
      const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
      if (!op) continue;
      add_rules({toString(op->operator_name()), {{"broadcast", [op = *op](const RuleContext& context, std::span<const LaneValue> values) {
        return elementwise(op, context, values);
      }}}});
    }
  }
}

}  // namespace hfta::ops
