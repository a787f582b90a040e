#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hfta/cli/board.h"
#include "hfta/cli/commands.h"
#include "hfta/cli/locate.h"
#include "hfta/cli/trial_maker.h"

namespace hfta::cli {

/// What a sweep tells at its end.
struct Summary {
  bool is_interrupted = false;
  Board board;                                  ///< As it was last shown.
  std::vector<tune::Trial> trials;              ///< All of the study.
  std::optional<tune::Trial> best;
  std::string weights;                          ///< Of the best trial; empty: not exported.
  std::optional<train::Metrics> test;           ///< Of the best trial over the test examples.
  std::vector<std::pair<std::vector<std::int64_t>, tune::ArrayPlan>> plans;
  std::string study, storage, folder, metric;
};

/// Measures the best trial on the test examples; nothing where there are none or no weights.
void complete(Summary& summary, const Located& located, const tune::Study& study, const TrialMaker& maker);
/// Fills in what the study holds, and writes `plan.json` into the run folder.
void collect(Summary& summary, const Located& located, const tune::Study& study);
void print(const Summary& summary, Format format, Streams streams);

}  // namespace hfta::cli
