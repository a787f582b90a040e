#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/optim/optimizer.h"

namespace hfta::train {

/// What a step function gives for one lane: a scalar loss, and what else it wants back (any shapes, equal for all lanes).
struct StepResult {
  at::Tensor loss;
  std::vector<at::Tensor> extras;
};

/// The user's function for one lane: forward and loss on this lane's module; the inputs are that lane's (no lane axis).
using LaneStep = std::function<StepResult(std::int64_t lane, std::span<const at::Tensor> inputs)>;

/// An input of a step: shared by all lanes, or with a leading lane axis.
struct Input {
  at::Tensor tensor;
  bool per_lane = false;
};

struct StepOptions {
  std::optional<optim::PerLane> max_norm;  ///< Clips each lane's gradient norm before the update.
  std::int64_t accumulate = 1;             ///< Updates once every so many calls, with the sum of their gradients.
};

/// What a step gives for all lanes.
struct StepOutput {
  at::Tensor losses;                ///< `[lanes]`, no gradient.
  std::vector<at::Tensor> extras;   ///< Each `[lanes, ...]`.
};

}  // namespace hfta::train

namespace hfta {

/// Marks an input with a leading lane axis `[lanes, ...]`.
inline train::Input per_lane(at::Tensor tensor) { return {std::move(tensor), true}; }

}  // namespace hfta
