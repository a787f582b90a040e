#pragma once

#include <string>
#include <vector>

#include "hfta/ops/rule.h"
#include "tests/support.h"

namespace hfta::test {

inline const c10::IValue kNone;

/// A per-lane tensor with its lane axis; a shared one; a number per lane.
inline ops::LaneValue per_lane(torch::Tensor tensor, std::int64_t axis = 0) { return ops::LaneTensor{std::move(tensor), axis}; }
inline ops::LaneValue shared(torch::Tensor tensor) { return ops::LaneTensor{std::move(tensor), std::nullopt}; }
inline ops::LaneValue numbers(std::vector<double> of_lane) { return ops::LaneNumbers{{of_lane.begin(), of_lane.end()}}; }
inline ops::LaneValue plain(c10::IValue value) { return value; }

inline ops::LaneValue flags(const std::vector<bool>& values) {
  c10::List<bool> list;
  for (const bool value : values) list.push_back(value);
  return c10::IValue(list);
}
inline ops::LaneValue integers(const std::vector<std::int64_t>& values) { return c10::IValue(values); }

/// Moves the lane axis of a stacked `[lanes, ...]` tensor to `axis` in memory as well.
inline ops::LaneValue per_lane_at(const torch::Tensor& stacked, std::int64_t axis) { return per_lane(stacked.movedim(0, axis).contiguous(), axis); }

struct RuleCheck {
  double factor = 1;             ///< On the tolerance.
  bool same_bits = false;        ///< Instead of the tolerance.
  std::vector<int> unchecked{};  ///< Results whose values are the operator's own business (a workspace).
};

/// Runs every lowering of the operator's rules and compares results and written arguments, lane by lane, with the plain operator on the
/// lane's slices (random ones: with the default generator in the lane's state). `arguments` are left as they are.
/// Fails where no lowering takes the arguments. Returns the names of those that did.
std::vector<std::string> check_rule(const std::string& name, const std::string& overload, std::int64_t lanes,
                                    const std::vector<ops::LaneValue>& arguments, const RuleCheck& options = {});

}  // namespace hfta::test
