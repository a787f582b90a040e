#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/optim/optimizer.h"
#include "hfta/optim/per_lane.h"

namespace hfta::optim {

/// Multiplies the rate by `gamma` every `step_size` steps.
struct StepLR {
  PerLane step_size = 1;
  PerLane gamma = 0.1;
};

/// From the base rate down to `eta_min` along half a cosine of `t_max` steps.
struct CosineAnnealingLR {
  PerLane t_max = 1;
  PerLane eta_min = 0;
};

/// The base rate times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps: a warm-up.
struct LinearLR {
  PerLane start_factor = 1.0 / 3;
  PerLane end_factor = 1;
  PerLane total_iters = 5;
};

using SchedulePart = std::variant<StepLR, CosineAnnealingLR, LinearLR>;

/// Sets each lane's learning rates step by step, exactly as `torch.optim.lr_scheduler` sets a single optimizer's: one part as its
/// class of that name, several with milestones as `SequentialLR`. Every number is per lane, and so is the count of steps. A step is
/// whatever the caller makes it, an epoch or an update. Must not outlive its optimizer.
///
///     Schedule decay(adam, StepLR{.step_size = {10, 30}});
///     Schedule warm_up(adam, {LinearLR{.total_iters = 5}, CosineAnnealingLR{.t_max = 95}}, {5});
class Schedule : public lanes::LaneFollower {
 public:
  /// Starts every lane from its present learning rates. `milestones[k]`: the step at which part `k + 1` begins.
  Schedule(Optimizer& optimizer, std::vector<SchedulePart> parts, const std::vector<PerLane>& milestones = {});
  Schedule(Optimizer& optimizer, SchedulePart part) : Schedule(optimizer, std::vector<SchedulePart>{std::move(part)}) {}
  ~Schedule() override;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  Optimizer& optimizer() const { return optimizer_; }
  void step();
  void step(std::int64_t lane);
  /// Steps of the lane since it started.
  std::int64_t steps(std::int64_t lane) const;
  /// Starts the lane anew from its present learning rates, which become the base.
  void restart(std::int64_t lane);
  /// As above with numbers of its own; the kinds of the parts must be the same.
  void restart(std::int64_t lane, const std::vector<SchedulePart>& parts, const std::vector<double>& milestones = {});

  /// The lane's state as the scheduler's `state_dict()` in PyTorch, which loads it; the learning rates are in the optimizer's.
  c10::IValue lane_state_dict(std::int64_t lane) const;
  /// @throws InvalidArgument before any write when a key is missing or does not fit, naming it.
  void load_lane_state_dict(std::int64_t lane, const c10::IValue& state);

  void lanes_moved(const std::vector<std::int64_t>& from) override;
  void lane_copied(std::int64_t source, std::int64_t target) override;
  void tensors_replaced() override {}

 private:
  /// One lane's schedule.
  struct LaneSchedule {
    std::vector<std::vector<double>> numbers;  ///< By part, in the order of the part's names.
    std::vector<std::int64_t> milestones;
    std::vector<double> base;  ///< Learning rate by parameter group; empty: an added lane that was not started yet.
    std::int64_t count = 0;    ///< Steps since the start.
  };

  LaneSchedule& at(std::int64_t lane);
  LaneSchedule lane_of(const std::vector<SchedulePart>& parts, const std::vector<PerLane>& milestones, std::int64_t lane, bool is_new) const;
  void check(const LaneSchedule& lane_schedule, std::int64_t lane) const;
  bool can_start(const LaneSchedule& lane_schedule, std::int64_t lane) const;
  void start(std::int64_t lane);

  Optimizer& optimizer_;
  std::vector<SchedulePart> parts_;
  std::vector<PerLane> milestones_;
  std::vector<LaneSchedule> lanes_;
};

}  // namespace hfta::optim
