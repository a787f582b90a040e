#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hfta::bench {

/// One operator on `lanes` lanes. Arguments are stacked `[lanes, ...]` where `per_lane` says so.
struct RuleCase {
  std::string op;    ///< `aten::convolution`
  std::string name;  ///< Of the shapes: "1to16x28".
  std::int64_t lanes;
  std::vector<c10::IValue> arguments;
  std::vector<bool> per_lane;
};

/// Registers `op/name/x<lanes>/alone` (the plain operator, lane after lane) and one benchmark per lowering that takes the arguments.
/// One intra-op thread: workers have one each.
void add_rule_case(RuleCase rule_case);

}  // namespace hfta::bench
