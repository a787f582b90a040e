#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

#include "hfta/lanes/array.h"

namespace hfta::lanes {

/// A lane's plain state dict `{name: tensor}` in Python's order; the tensors are rows of the array, not copies.
c10::IValue lane_state_dict(const ArrayBase& array, std::int64_t lane);
/// Writes a state dict into a lane, as strict as `load_state_dict(strict=True)` and about types too.
/// @throws InvalidArgument before anything is written when a key, shape or type does not fit, naming it.
void load_lane_state_dict(ArrayBase& array, std::int64_t lane, const c10::IValue& state);

/// Saves a lane so that `torch.load(path, weights_only=True)` gives a state dict for the single model.
void save_lane(const ArrayBase& array, std::int64_t lane, const std::string& path);
/// Loads what `save_lane` or Python's `torch.save(model.state_dict(), path)` wrote.
void load_lane(ArrayBase& array, std::int64_t lane, const std::string& path);

/// All lanes' state, for checkpoints: seeds, stacks, generators. The stacks are the array's own, not copies.
c10::IValue array_state(ArrayBase& array);
/// The way back, into an array built with the same seeds. @throws InvalidArgument before anything is written when something does not fit.
void load_array_state(ArrayBase& array, const c10::IValue& state);

}  // namespace hfta::lanes

namespace hfta {
using lanes::load_lane;
using lanes::save_lane;
}  // namespace hfta
