#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <span>
#include <vector>

#include "hfta/ops/rule.h"

namespace hfta::ops {

/// The tensors with the lane axis first and one-sized axes behind it, so that they broadcast against each other as the lanes' own values
/// do; shared ones as they are, absent ones undefined. A lane's zero-dimensional value takes the type that it has beside the others.
/// `in_place`: the first is written into and keeps its type.
std::vector<at::Tensor> aligned(std::span<const std::optional<LaneTensor>> values, std::int64_t lanes, bool in_place = false);

/// Runs an elementwise operator, in-place ones too, once on aligned tensors. Nothing where a number differs between lanes.
std::optional<std::vector<LaneValue>> elementwise(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> values);

}  // namespace hfta::ops
