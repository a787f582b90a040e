#include "hfta/train/recorded_step.h"

#include "hfta/base/error.h"
#include "hfta/train/lane_gradients.h"

namespace hfta::train {

struct RecordedStep::State {
  State(std::vector<lanes::ArrayBase*> of, optim::Optimizer& by, LaneStep step, StepOptions how, plan::Plan plan, RecordOptions recording)
      : arrays(std::move(of)), optimizer(by), options(std::move(how)), lane(arrays, {&by.array()}, std::move(step)),
        function(arrays, [this](std::int64_t index, std::span<const at::Tensor> inputs) { return lane.run(index, inputs); }, std::move(plan), std::move(recording)) {}

  std::vector<lanes::ArrayBase*> arrays;
  optim::Optimizer& optimizer;
  StepOptions options;
  LaneGradients lane;
  RecordedFunction function;
  std::int64_t pending = 0;
  std::vector<double> max_norm{};  // per lane; empty: no clip

  lanes::ArrayBase& array() const { return optimizer.array(); }

  void update(std::int64_t first, std::int64_t width, std::span<const at::Tensor> gradients) const {
    if (!max_norm.empty()) optim::clip_gradients(gradients, std::vector<double>(max_norm.begin() + first, max_norm.begin() + first + width));
    optimizer.update(first, width, gradients);
  }

  void update_from_sums(std::int64_t first, std::int64_t width) const {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : array().parameters())
      gradients.push_back(parameter.tensor.grad().defined() ? parameter.tensor.grad().narrow(0, first, width) : at::Tensor());
    update(first, width, gradients);
  }
};

RecordedStep::RecordedStep(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options, plan::Plan plan,
                           RecordOptions recording) {
  check_arrays(arrays, &optimizer, "train::record");
  HFTA_CHECK(options.accumulate >= 1, "train::record: expected to accumulate over at least 1 call, got ", options.accumulate);
  state_ = std::make_unique<State>(std::move(arrays), optimizer, std::move(step), std::move(options), std::move(plan), std::move(recording));
}

RecordedStep::~RecordedStep() = default;
RecordedStep::RecordedStep(RecordedStep&&) noexcept = default;

StepOutput RecordedStep::operator()(std::span<const Input> inputs) {
  auto& state = *state_;
  check_inputs(inputs, *state.arrays[0], "train::record");
  if (state.options.max_norm) state.max_norm = state.options.max_norm->of_lanes(state.array().lanes(), "train::record: max_norm");
  StepOutput output;
  const bool sums = state.options.accumulate > 1, updates = state.pending + 1 >= state.options.accumulate;
  state.function.run(inputs, [&](std::int64_t first, std::int64_t width, std::span<const at::Tensor> results) {
    state.lane.collect(output, first, results);
    if (sums) state.lane.accumulate(first, results);
    if (!updates) return;
    sums ? state.update_from_sums(first, width) : state.update(first, width, state.lane.gradients(results));
  });
  state.pending = updates ? 0 : state.pending + 1;
  if (sums && updates) state.array().zero_grad();
  return output;
}

const plan::Plan& RecordedStep::plan() const { return state_->function.plan(); }
void RecordedStep::set_plan(plan::Plan plan) { state_->function.set_plan(std::move(plan)); }
std::string RecordedStep::report() const { return state_->function.report(); }
std::string RecordedStep::print(std::int64_t repeats) { return state_->function.print(repeats); }
std::int64_t RecordedStep::activation_bytes() const { return state_->function.activation_bytes(); }
std::int64_t RecordedStep::pending() const { return state_->pending; }

}  // namespace hfta::train
