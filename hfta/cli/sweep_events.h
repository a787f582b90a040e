#pragma once

#include <chrono>

#include "hfta/cli/board.h"
#include "hfta/cli/trial_maker.h"
#include "hfta/cli/watch.h"

namespace hfta::cli {

/// Turns what the tuner tells into the board that a watch shows.
class SweepEvents {
 public:
  SweepEvents(const StudyFile& file, const TrialMaker& maker, const tune::Study& study, Watch& watch);

  /// For `Tuner::run`; this outlives it.
  tune::TunerEvents tuner_events();
  const Board& board() const { return board_; }

 private:
  using Numbers = std::vector<std::int64_t>;
  void began(const std::vector<tune::Trial>& running, const std::vector<Numbers>& arrays);
  void planned(const Numbers& trials, const tune::ArrayPlan& plan, std::int64_t epoch);
  void stepped(const Numbers& trials, const train::StepReport& report);
  void epoch_ended(const Numbers& trials, const train::EpochReport& report);
  void ended(std::int64_t trial, tune::TrialState state, const train::LaneRecord& lane);
  TrialRow& row(std::int64_t number);
  void fill(TrialRow& row, const train::LaneRecord& lane) const;
  void show();

  const StudyFile& file_;
  const TrialMaker& maker_;
  const tune::Study& study_;
  Watch& watch_;
  Board board_;
  std::map<std::int64_t, std::size_t> rows_;        // trial number -> row
  std::map<std::int64_t, std::int64_t> ahead_;      // trial number -> model-steps that it has yet to take
  std::chrono::steady_clock::time_point last_step_{};
  bool has_last_step_ = false;
};

}  // namespace hfta::cli
