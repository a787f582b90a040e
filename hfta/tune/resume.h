#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hfta/tune/space.h"
#include "hfta/tune/trial.h"

namespace hfta::tune {

struct TrialRequest {
  std::int64_t total = 0;                 ///< How many trials the study is to have, those it has included.
  std::optional<std::int64_t> more{};     ///< Asked for on top of what is there; `total` does not count then.
  std::optional<std::uint64_t> points{};  ///< Of a finite space whose points are tried once.
};

struct TrialPlan {
  std::int64_t create = 0;  ///< New trials to begin.
  std::string summary{};    ///< One line for people.
};

/// How many trials a sweep begins in a study that has `existing` trials of any state.
/// @throws InvalidArgument for a negative number.
TrialPlan plan_trials(std::int64_t existing, const TrialRequest& request);

/// What differs, one text per parameter: `"lr" to be uniform(-10, 10) as in the study, got loguniform(1e-05, 0.1)`.
std::vector<std::string> space_changes(const Space& before, const Space& now);
/// The same for a study made by others, from the parameters of its trials.
std::vector<std::string> space_changes(std::span<const Trial> before, const Space& now);

}  // namespace hfta::tune
