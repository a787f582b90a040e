#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hfta/plan/plan.h"
#include "hfta/train/recorded_function.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// Forward and backward recorded per input shape, fused and replayed: adds to the stacked gradients of all arrays, as `backward` does.
class RecordedBackward {
 public:
  RecordedBackward(std::vector<lanes::ArrayBase*> arrays, LaneStep step, plan::Plan plan = {}, RecordOptions recording = {});
  ~RecordedBackward();
  RecordedBackward(RecordedBackward&&) noexcept;

  /// @throws Unsupported, before anything is changed, where the step cannot be recorded.
  StepOutput operator()(std::span<const Input> inputs);

  const plan::Plan& plan() const;
  void set_plan(plan::Plan plan);
  std::string report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::train
