#pragma once

#include <map>
#include <string>
#include <vector>

#include "hfta/train/runner.h"
#include "hfta/train/trainer.h"

namespace hfta::train {

struct Trainer::State {
  std::vector<lanes::ArrayBase*> arrays;
  optim::Optimizer& optimizer;
  LaneStep step;
  TrainerOptions options;
  Runner runner;
  std::vector<LaneRecord> records{};          // By id.
  std::vector<std::int64_t> ids{};            // Of the array's lanes.
  std::map<std::int64_t, std::string> stop_requests{};
  std::vector<std::uint64_t> first_seeds{};   // By id: what the array was built with.
  std::int64_t epoch = 0;
  std::optional<plan::Plan> plan{};
  std::string plan_reason{};
  std::optional<double> step_ms{};            // Of the last steps, while the runner is the same.

  State(std::vector<lanes::ArrayBase*> of, optim::Optimizer& by, LaneStep with, TrainerOptions how);

  std::int64_t lane_count() const { return arrays[0]->lanes(); }
  bool anyone_runs() const;
  std::int64_t steps_together() const;
  void train_mode(bool on) const;

  /// The batch's inputs for the lanes that are still in the array.
  std::vector<Input> inputs_now(const TrainBatch& batch) const;
  /// Step options for those lanes.
  StepOptions step_options_now() const;
  /// Those of the plan and those that the runner has chosen since.
  std::map<std::string, std::string> lowerings_now() const;
  /// Keeps these lanes of the array and makes a runner for them.
  void keep(const std::vector<std::int64_t>& lanes);

};

}  // namespace hfta::train
