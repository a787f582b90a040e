#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hfta/optim/optimizer.h"
#include "hfta/plan/choose.h"
#include "hfta/train/recorded_function.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// A training step recorded per input shape, fused and replayed: forward, backward, clip and update of a group back to back on its
/// worker. Gives what plain steps give; `.grad` of the lanes is left alone, but for `accumulate`, which adds to the stacked gradients.
class RecordedStep {
 public:
  /// @param optimizer updates its own array, one of `arrays`; random operators draw from the generators of `arrays[0]`.
  RecordedStep(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options = {}, plan::Plan plan = {},
               RecordOptions recording = {});
  ~RecordedStep();
  RecordedStep(RecordedStep&&) noexcept;

  /// @throws Unsupported, before anything is changed, where the step cannot be recorded.
  StepOutput operator()(std::span<const Input> inputs);

  /// A step on each batch in turn. A group trains on all batches before its worker takes the next group: its weights and optimizer state
  /// come from memory once, not once a step. Gives what as many calls give, bit for bit.
  /// @param after_update called once for each update, in order: may set hyper-parameters for the next one (a schedule's step).
  /// @param[out] outputs one for each step made, also where it throws.
  /// @throws Unsupported, before the step on a batch changes anything, where that step cannot be recorded.
  void run(std::span<const Batch> batches, std::vector<StepOutput>& outputs, const std::function<void()>& after_update = {});

  /// What a plan is chosen for: the step's structure, and what it asks of the machine with its optimizer. Records first where the shape of
  /// the inputs is new. @throws Unsupported where the step cannot be recorded.
  plan::Subject subject(std::span<const Input> inputs);

  const plan::Plan& plan() const;
  void set_plan(plan::Plan plan);
  std::string report() const;
  std::string print(std::int64_t repeats = 0);
  std::int64_t activation_bytes() const;
  /// Calls whose gradients wait for the update.
  std::int64_t pending() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::train
