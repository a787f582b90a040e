#pragma once

#include <vector>

#include "hfta/program/program.h"

namespace hfta::lanes {

/// Which memories of the lanes' programs (one structure) differ between lanes: state that is not shared, per-lane inputs, constants that differ, what random nodes
/// and nodes with differing numbers make or write, and all that is computed from these or has one of them written into it at any time.
std::vector<bool> varying_memories(const std::vector<const program::Program*>& lanes, const std::vector<bool>& input_is_per_lane,
                                    const std::vector<bool>& state_is_shared = {});

}  // namespace hfta::lanes
