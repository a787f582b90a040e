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
  std::vector<at::Tensor> extras{};
};

/// The user's function for one lane: forward and loss on this lane's module; the inputs are that lane's (no lane axis).
using LaneStep = std::function<StepResult(std::int64_t lane, std::span<const at::Tensor> inputs)>;

/// A function for one lane without gradients: results of any shapes, equal for all lanes.
using LaneFunction = std::function<std::vector<at::Tensor>(std::int64_t lane, std::span<const at::Tensor> inputs)>;

/// An input of a step: shared by all lanes, or with a leading lane axis.
struct Input {
  at::Tensor tensor;
  bool per_lane = false;
};

/// The inputs of one step.
using Batch = std::vector<Input>;

struct StepOptions {
  std::optional<optim::PerLane> max_norm{};  ///< Clips each lane's gradient norm before the update.
  std::int64_t accumulate = 1;             ///< Updates once every so many calls, with the sum of their gradients.
};

/// What a step gives for all lanes.
struct StepOutput {
  at::Tensor losses;                ///< `[lanes]`, no gradient.
  std::vector<at::Tensor> extras{}; ///< Each `[lanes, ...]`.
};

/// How many steps of so many milliseconds are made in one call where nobody waits for each: at most 8, about a tenth of a second's.
std::int64_t steps_together(double step_ms);

/// @throws InvalidArgument beginning with `who` for no array, arrays of different lanes or devices, or an optimizer of none of them.
void check_arrays(std::span<lanes::ArrayBase* const> arrays, const optim::Optimizer* optimizer, const std::string& who);
/// @throws InvalidArgument naming the input that is undefined, on another device, or has a lane axis of another size.
void check_inputs(std::span<const Input> inputs, const lanes::ArrayBase& array, const std::string& who);
/// One lane's inputs: the shared ones themselves, the lane's slice of the others.
std::vector<at::Tensor> inputs_of_lane(std::span<const Input> inputs, std::int64_t lane);
/// @throws InvalidArgument unless the lane's loss is a scalar that depends on something trainable.
void check_loss(const at::Tensor& loss, std::int64_t lane, const std::string& who);
/// Stacks `values[lane][i]` into results `[lanes, ...]`, without gradients.
/// @throws InvalidArgument naming the lane whose number of results, shape or type differs from lane 0's.
std::vector<at::Tensor> stack_results(const std::vector<std::vector<at::Tensor>>& values, const std::string& who);

}  // namespace hfta::train

namespace hfta {

/// Marks an input with a leading lane axis `[lanes, ...]`.
inline train::Input per_lane(at::Tensor tensor) { return {std::move(tensor), true}; }

}  // namespace hfta
