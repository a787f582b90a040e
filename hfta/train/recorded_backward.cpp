#include "hfta/train/recorded_backward.h"

#include "hfta/base/error.h"
#include "hfta/train/lane_gradients.h"

namespace hfta::train {

struct RecordedBackward::State {
  State(std::vector<lanes::ArrayBase*> of, LaneStep step, plan::Plan plan, RecordOptions recording)
      : arrays(std::move(of)), lane(arrays, arrays, std::move(step)),
        function(arrays, [this](std::int64_t index, std::span<const at::Tensor> inputs) { return lane.run(index, inputs); }, std::move(plan), std::move(recording)) {}

  std::vector<lanes::ArrayBase*> arrays;
  LaneGradients lane;
  RecordedFunction function;
};

RecordedBackward::RecordedBackward(std::vector<lanes::ArrayBase*> arrays, LaneStep step, plan::Plan plan, RecordOptions recording) {
  check_arrays(arrays, nullptr, "train::record");
  state_ = std::make_unique<State>(std::move(arrays), std::move(step), std::move(plan), std::move(recording));
}

RecordedBackward::~RecordedBackward() = default;
RecordedBackward::RecordedBackward(RecordedBackward&&) noexcept = default;

StepOutput RecordedBackward::operator()(std::span<const Input> inputs) {
  auto& state = *state_;
  check_inputs(inputs, *state.arrays[0], "train::record");
  for (auto* array : state.arrays) array->stack_gradients();
  StepOutput output;
  state.function.run(inputs, [&](std::int64_t first, std::int64_t, std::span<const at::Tensor> results) {
    state.lane.collect(output, first, results);
    state.lane.accumulate(first, results);
  });
  for (auto* array : state.arrays) array->stack_gradients();
  return output;
}

const plan::Plan& RecordedBackward::plan() const { return state_->function.plan(); }
void RecordedBackward::set_plan(plan::Plan plan) { state_->function.set_plan(std::move(plan)); }
std::string RecordedBackward::report() const { return state_->function.report(); }

}  // namespace hfta::train
