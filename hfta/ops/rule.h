#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// A number that differs between the lanes of a group (a dropout probability, a momentum): one entry per lane.
struct LaneNumbers {
  std::vector<c10::Scalar> of_lane;
};

/// One argument or result of an operator run for a group of lanes. `IValue` holds whatever is no tensor, equal for all lanes
/// (also an undefined tensor or None). The two lists are `Tensor[]` and `Tensor?[]`.
using LaneValue = std::variant<c10::IValue, LaneTensor, LaneNumbers, std::vector<LaneTensor>, std::vector<std::optional<LaneTensor>>>;

/// What a rule may know besides its arguments.
struct RuleContext {
  std::int64_t lanes;                          ///< Lanes of the group.
  const std::vector<at::Generator>& generators;  ///< One per lane of the group; random rules draw lane i's numbers from entry i.
};

/// Computes the operator for all lanes of the group with ordinary ATen calls on the physical tensors (never inside the batching
/// layer); these calls are taken down and become the group's program. Returns the operator's results in order, or nothing when
/// this lowering does not take these arguments. In-place and `out=` operators write into their arguments' memory as the operator says and
/// return those. It must neither read tensors' values nor keep state.
using Rule = std::function<std::optional<std::vector<LaneValue>>(const RuleContext&, std::span<const LaneValue>)>;

/// One way to compute a fused operator.
struct Lowering {
  std::string_view name;  ///< As in the operator's `enum class`, snake_case: "grouped", "wide".
  Rule rule;
  bool cpu_only = false;
};

/// All ways to compute one operator, best guess first (what is used where nothing was timed).
struct OperatorRules {
  std::string_view name;  ///< `aten::convolution`, or with overload `aten::sum.dim_IntList`.
  std::vector<Lowering> lowerings;
};

/// The rules for an operator, or null where it has none (then LibTorch's batching rule serves, or one node per lane).
const OperatorRules* find_rules(const c10::OperatorName& name);

/// Adds the rules of one operator, behind those that it has; called by the areas' `register_*` functions, once per process.
void add_rules(OperatorRules rules);

}  // namespace hfta::ops
