#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hfta/ops/rule.h"
#include "tests/support.h"

namespace hfta::test {

/// One argument of an operator in a test: equal for all lanes, or a tensor per lane and where its physical lane axis is put.
struct LaneArgument {
  std::vector<c10::IValue> of_lane;
  std::optional<std::int64_t> axis;
  /// Gaps between the lanes' rows, as stacked parameters have them.
  bool padded = false;
};

inline LaneArgument same(c10::IValue value) { return {{std::move(value)}, std::nullopt}; }
inline LaneArgument per_lane(const std::vector<torch::Tensor>& tensors, std::int64_t axis, bool padded = false) {
  return {{tensors.begin(), tensors.end()}, axis, padded};
}
/// Normally distributed tensors, one per lane, lane axis at `axis`.
inline LaneArgument random_lanes(std::int64_t lanes, at::IntArrayRef sizes, torch::ScalarType type, std::int64_t axis, bool padded = false) {
  std::vector<torch::Tensor> tensors;
  for (std::int64_t lane = 0; lane < lanes; ++lane) tensors.push_back(torch::randn(sizes, torch::dtype(type).device(device())));
  return per_lane(tensors, axis, padded);
}
inline LaneArgument random_shared(at::IntArrayRef sizes, torch::ScalarType type) {
  return same(torch::randn(sizes, torch::dtype(type).device(device())));
}

inline c10::OperatorHandle operator_named(const std::string& name, const std::string& overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
}

inline ops::LaneValue physical(const LaneArgument& argument) {
  const auto& first = argument.of_lane.front();
  if (!argument.axis) return first.isTensor() && first.toTensor().defined() ? ops::LaneValue(ops::LaneTensor{first.toTensor(), std::nullopt}) : first;
  std::vector<torch::Tensor> tensors;
  for (const auto& value : argument.of_lane) tensors.push_back(value.toTensor());
  auto stacked = torch::stack(tensors, *argument.axis);
  if (argument.padded) {
    const auto lanes_first = stacked.movedim(*argument.axis, 0);
    const auto lanes = lanes_first.size(0), row = lanes_first.numel() / lanes;
    const auto memory = torch::full({lanes, row + 5}, 77, stacked.options());
    memory.narrow(1, 0, row).copy_(lanes_first.reshape({lanes, row}));
    stacked = memory.narrow(1, 0, row).unflatten(1, tensors[0].sizes()).movedim(0, *argument.axis);
  }
  return ops::LaneTensor{stacked, *argument.axis};
}

/// The plain operator on one lane's arguments.
inline std::vector<c10::IValue> alone(const c10::OperatorHandle& op, const std::vector<LaneArgument>& arguments, std::int64_t lane) {
  torch::jit::Stack stack;
  for (const auto& argument : arguments) stack.push_back(argument.of_lane[argument.axis ? static_cast<std::size_t>(lane) : 0]);
  op.callBoxed(stack);
  return stack;
}

/// Runs a rule as the lift does: below autograd, on physical tensors.
inline std::optional<std::vector<ops::LaneValue>> run_rule(const ops::Lowering& lowering, std::int64_t lanes,
                                                           const std::vector<LaneArgument>& arguments) {
  std::vector<ops::LaneValue> values;
  for (const auto& argument : arguments) values.push_back(physical(argument));
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return lowering.rule({lanes, {}}, values);
}

/// One lane's tensor of a rule's result; undefined where the result is no tensor.
inline torch::Tensor lane_result(const ops::LaneValue& value, std::int64_t lane) {
  if (const auto* tensor = std::get_if<ops::LaneTensor>(&value)) return ops::lane_of(*tensor, lane);
  const auto* plain = std::get_if<c10::IValue>(&value);
  return plain != nullptr && plain->isTensor() ? plain->toTensor() : torch::Tensor();
}

/// Every lane of every result equals the operator alone. Returns the names of the lowerings that took the arguments.
inline std::vector<std::string> expect_lanes_equal_alone(const std::string& name, std::int64_t lanes, const std::vector<LaneArgument>& arguments,
                                                         const std::string& overload = "", double scale = 10) {
  std::vector<std::string> took;
  const auto* rules = ops::find_rules({name, overload});
  EXPECT_NE(rules, nullptr) << "no rules for " << name;
  if (rules == nullptr) return took;
  const auto op = operator_named(name, overload);
  for (const auto& lowering : rules->lowerings) {
    const auto results = run_rule(lowering, lanes, arguments);
    if (!results) continue;
    took.emplace_back(lowering.name);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const auto expected = alone(op, arguments, lane);
      EXPECT_EQ(results->size(), expected.size()) << name << " " << lowering.name;
      for (std::size_t i = 0; i < expected.size() && i < results->size(); ++i) {
        const auto want = expected[i].toTensor(), got = lane_result((*results)[i], lane);
        EXPECT_TRUE(close(got, want, tolerance(want.defined() ? want.scalar_type() : torch::kFloat), scale))
            << name << " " << lowering.name << ", lane " << lane << " of " << lanes << ", result " << i;
      }
    }
  }
  return took;
}

}  // namespace hfta::test
