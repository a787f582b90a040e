#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>
#include <vector>

#include "hfta/ops/rule.h"

namespace hfta::ops {

/// The operator's arguments for one lane: slices of per-lane tensors, the lane's own numbers, everything else as it is.
torch::jit::Stack lane_arguments(const c10::OperatorHandle& op, std::span<const LaneValue> arguments, std::int64_t lane);

/// One call per lane on its slices; results are stacked on a leading lane axis, in-place ones are written into the slices.
std::vector<LaneValue> loop_lanes(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> arguments);

/// As `loop_lanes` for an operator that draws random numbers: lane i's are drawn from its generator in the order of memory where its
/// slice is dense, else in row-major order.
/// @throws Unsupported for an operator that takes no generator.
std::vector<LaneValue> draw_lanes(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> arguments);

}  // namespace hfta::ops
