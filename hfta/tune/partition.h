#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hfta/tune/trial.h"

namespace hfta::tune {

/// Trials that train together as the lanes of one array.
struct Batch {
  std::vector<std::int64_t> trials;                   ///< Numbers, in the order given: lane 0 is the first.
  std::vector<std::pair<std::string, Value>> common;  ///< What they share of the parameters that split.
};

struct SplitOptions {
  std::vector<std::string> by{};  ///< Parameters that cannot differ within an array: batch size, architecture, optimizer class.
  std::int64_t max_lanes = 0;     ///< Of an array; 0: no limit. What exceeds it is dealt out evenly.
};

/// Divides trials into arrays: those that agree in all parameters of `by` go together (a parameter that a trial lacks is a value of its own).
/// Arrays are in the order of their first trial. Pure.
/// @throws InvalidArgument when no trial has a parameter of `by`, listing those known, or for a negative limit.
std::vector<Batch> split(std::span<const Trial> trials, const SplitOptions& options);

}  // namespace hfta::tune
