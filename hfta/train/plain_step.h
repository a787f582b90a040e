#pragma once

#include <memory>

#include "hfta/base/threads.h"
#include "hfta/plan/plan.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// Plain training steps: each lane's own module runs eagerly, its forward, backward, clip and update back to back on one worker,
/// lanes spread over the workers. The definition of right that recorded steps are compared with.
///
/// Random operators draw from the lane's generator (`arrays.front()`'s). The lanes' gradients are cleared before a step's first
/// call and after its update. Where a lane fails the error names it, and lanes that were done before stay updated.
class PlainStep {
 public:
  /// Of the plan, workers and intra-op threads count.
  PlainStep(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options = {}, plan::Plan plan = {.recorded = false});
  ~PlainStep();
  PlainStep(PlainStep&&) noexcept;

  /// One call: an update, or with `accumulate` a part of one.
  /// @throws InvalidArgument for misuse (a wrong input, a loss that is no scalar), before any lane is updated where that can be told.
  StepOutput operator()(std::span<const Input> inputs);

  /// Calls whose gradients wait for the update.
  std::int64_t pending() const;
  /// Goes on where another kind of step left the sum of so many calls' gradients on the optimizer's array.
  void take_over(std::int64_t pending);
  const plan::Plan& plan() const;
  void set_plan(plan::Plan plan);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One plain training step of all lanes. Without `workers` it keeps one worker per core for the calling thread.
/// @throws InvalidArgument for `accumulate` other than 1: a `PlainStep` keeps the count, or `backward` and `Optimizer::step` serve.
StepOutput train_step(std::span<lanes::ArrayBase* const> arrays, optim::Optimizer& optimizer, const LaneStep& step, std::span<const Input> inputs,
                      const StepOptions& options = {}, base::Workers* workers = nullptr);

/// Forward and backward of all lanes; adds to the arrays' stacked gradients, updates nothing.
StepOutput backward(std::span<lanes::ArrayBase* const> arrays, const LaneStep& step, std::span<const Input> inputs, base::Workers* workers = nullptr);

/// Runs the function for all lanes without gradients, in the arrays' present mode (`train` or `eval`). @returns results `[lanes, ...]`.
std::vector<at::Tensor> evaluate(std::span<lanes::ArrayBase* const> arrays, const LaneFunction& function, std::span<const Input> inputs,
                                 base::Workers* workers = nullptr);

}  // namespace hfta::train
