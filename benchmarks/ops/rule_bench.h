#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hfta::bench {

/// One operator on `lanes` lanes. Arguments are stacked `[lanes, ...]` where `per_lane` says so.
struct RuleCase {
  std::string op;    ///< `aten::convolution`, or with its overload `aten::bernoulli_.float`.
  std::string name;  ///< Of the shapes: "1to16x28".
  std::int64_t lanes;
  std::vector<c10::IValue> arguments;
  std::vector<bool> per_lane;
  bool grad_mode = false;  ///< Some kernels keep what their gradients need only with it.
};

/// Registers `op/name/x<lanes>/alone` (the plain operator, lane after lane) and one benchmark per lowering that takes the arguments, or
/// of LibTorch's own batching where the operator has no rule. One intra-op thread: workers have one each.
void add_rule_case(RuleCase rule_case);

}  // namespace hfta::bench
