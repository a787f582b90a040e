#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hfta/plan/plan.h"
#include "hfta/train/recorded_function.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// A function without gradients recorded per input shape and mode (`train` or `eval`), fused and replayed. Gives what `evaluate` gives.
class RecordedEvaluation {
 public:
  RecordedEvaluation(std::vector<lanes::ArrayBase*> arrays, LaneFunction function, plan::Plan plan = {}, RecordOptions recording = {});

  /// @returns results `[lanes, ...]`. @throws Unsupported, before anything is changed, where the function cannot be recorded.
  std::vector<at::Tensor> operator()(std::span<const Input> inputs);

  const plan::Plan& plan() const { return function_.plan(); }
  void set_plan(plan::Plan plan) { function_.set_plan(std::move(plan)); }
  std::string report() const { return function_.report(); }

 private:
  lanes::ArrayBase* array_;
  RecordedFunction function_;
};

}  // namespace hfta::train
