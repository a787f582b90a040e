#pragma once

#include <vector>

#include "hfta/ops/rule.h"
#include "hfta/program/program.h"

namespace hfta::lanes {

/// Whether LibTorch's batching layer knows the operator.
bool has_batching_rule(const c10::OperatorHandle& op);

/// Calls the node's operator, in the grad mode that it was recorded in, on tensors without lane axes.
std::vector<ops::LaneValue> call(const program::Node& node, const std::vector<ops::LaneValue>& arguments);

/// Calls it under LibTorch's batching layer: each tensor that has a lane axis is a batch of `lanes`.
std::vector<ops::LaneValue> call_batched(const program::Node& node, const std::vector<ops::LaneValue>& arguments, std::int64_t lanes);

/// Calls it once per lane, on the lane's slices, numbers and generator, and stacks what it makes.
std::vector<ops::LaneValue> call_per_lane(const program::Node& node, const std::vector<ops::LaneValue>& arguments,
                                          const std::vector<at::Generator>& generators);

/// Whether result `index` is an argument that the operator wrote in place.
bool is_written_argument(const c10::FunctionSchema& schema, std::size_t index);

}  // namespace hfta::lanes
