#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hfta/plan/cost.h"
#include "hfta/plan/memory.h"
#include "hfta/plan/plan.h"

namespace hfta::plan {

/// What the candidates are made of.
struct SearchSpace {
  std::int64_t lanes = 1;
  std::int64_t cores = 1;                        ///< Workers x intra-op threads never exceed it.
  bool recorded = true;                          ///< Recorded steps over widths and workers.
  bool plain = true;                             ///< Plain steps: one model per worker, and one after the other.
  bool plain_workers = true;                     ///< The former of these; in Python lanes run one after the other.
  std::int64_t steps = 1;                        ///< Steps that a call makes (`RecordedStep::run`): a plan is timed as it will run.
  bool measures_lowerings = true;                ///< Of the candidates.
  std::string device = "cpu";
  std::string precision = "float32";
  std::optional<MemoryProfile> memory{};         ///< With it candidates that need more than the limit are left out.
  std::int64_t memory_limit_bytes = 0;           ///< 0: no limit.
};

/// Plans worth timing, those to be beaten first: one model per worker and one after the other, then widths 1, 2, 4, ... and an
/// even share per worker, each with 1, 2, 4, ... and all cores as workers; the cores are divided among the workers.
std::vector<Plan> candidates(const SearchSpace& space);

struct SearchOptions {
  double budget_seconds = 5;                     ///< No measurement begins after it; the plan to be beaten and a recorded one are always timed.
  std::int64_t run_steps = 0;                    ///< Steps of the run, 0: not known. A search takes at most a twentieth of these steps' time.
  std::int64_t repeats = 9;                      ///< Measurements of a finalist.
  double tie = 0.02;                             ///< Finalists this close are equal: the one that needs least memory is taken.
  std::function<double()> clock{};               ///< Seconds; the process's steady clock where empty.
  /// Milliseconds of a step as expected; only ratios count. Promising candidates are timed first, hopeless ones never.
  std::function<double(const Plan&)> predict{};
  bool prunes = true;                            ///< Whether hopeless ones are left out.
  bool keeps = true;                             ///< Keeps the choice on disk and takes one that was kept (`Cache`).
};

/// A candidate and what was measured.
struct Timing {
  Plan plan;
  std::vector<double> step_ms{};
  std::string error{};                           ///< Why it could not run.
  double predicted_ms = 0;                       ///< By the model, calibrated by what was measured; 0: by none.
  bool is_pruned = false;                        ///< Not timed, since the model gave it no hope.

  double median_ms() const;                      ///< Infinite where nothing was measured.
  double best_ms() const;
};

struct SearchResult {
  Plan plan;                                     ///< The chosen one.
  double step_ms = 0;                            ///< Its median.
  std::vector<Timing> timings{};                 ///< All candidates, in the order given.
  double seconds = 0;                            ///< What the search took.
  std::optional<StepProfile> profile{};          ///< What predictions were made from; empty: none were made, or long ago.
  std::string explanation{};                     ///< One line: what was chosen, against what, and what could not run.
};

/// Milliseconds of one training step by the plan (after a warm-up of its own). May throw: the candidate is then left out.
using Measure = std::function<double(const Plan&)>;

/// Successive halving: every candidate that is not hopeless is timed once, the better half (and whoever is within 10 % of the best) twice as often, and
/// so on, always interleaved so that a slow moment of the machine meets all of them. Entry 0 is the plan to be beaten.
/// @throws Error with all reasons when no candidate could run.
SearchResult search(const std::vector<Plan>& candidates, const Measure& measure, const SearchOptions& options = {});

}  // namespace hfta::plan
