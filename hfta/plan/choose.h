#pragma once

#include <functional>
#include <optional>
#include <string>

#include "hfta/plan/cost.h"
#include "hfta/plan/search.h"

namespace hfta::plan {

/// What a plan is chosen for.
struct Subject {
  std::string key{};                        ///< All that its time depends on besides the space and this machine; empty: the choice is not kept.
  std::optional<StepProfile> profile{};     ///< With it the search begins with promising plans and leaves out hopeless ones.
  /// The plan with the lowerings that it runs by, to be kept; empty: as it is.
  std::function<Plan(const Plan&)> complete{};
};

/// The plan that was kept for this subject, space, machine and version of the libraries, or the result of a search, which is then kept.
/// A plan of several threads that proves slower than one model after the other now (the machine is busy) is chosen again among those of one.
SearchResult choose(const SearchSpace& space, const Subject& subject, const Measure& measure, const SearchOptions& options = {});

/// What a kept choice is found by.
std::string key_of(const SearchSpace& space, const Subject& subject);

/// A line for each candidate: its time, what was predicted, or why it was not timed; the chosen one is marked.
std::string table(const SearchResult& result);

}  // namespace hfta::plan
