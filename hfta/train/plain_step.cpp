#include "hfta/train/plain_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <utility>

#include "hfta/base/error.h"
#include "hfta/train/lane_loop.h"

namespace hfta::train {
namespace {

using Arrays = std::span<lanes::ArrayBase* const>;

// What the lanes return, written by the workers, each into its lane's place.
struct Results {
  explicit Results(std::int64_t lanes) : losses(lanes), extras(lanes) {}

  void take(std::int64_t lane, StepResult result) {
    losses[lane] = {result.loss.detach().reshape({})};
    extras[lane] = std::move(result.extras);
    for (auto& extra : extras[lane])
      if (extra.defined()) extra = extra.detach();
  }
  StepOutput stacked(const std::string& who) const { return {stack_results(losses, who)[0], stack_results(extras, who)}; }

  std::vector<std::vector<at::Tensor>> losses, extras;
};

StepResult forward_backward(const LaneStep& step, std::int64_t lane, std::span<const Input> inputs, const std::string& who) {
  const at::AutoGradMode with_grad(true);
  const auto mine = inputs_of_lane(inputs, lane);
  auto result = step(lane, mine);
  check_loss(result.loss, lane, who);
  result.loss.backward();
  return result;
}

void drop_gradients(const lanes::ArrayBase& array, std::int64_t lane) {
  for (const auto& parameter : array.lane_parameters(lane)) parameter.mutable_grad().reset();
}

// Clip and update of one lane by its own gradients.
void update_lane(optim::Optimizer& optimizer, std::int64_t lane, const std::vector<double>& max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients, present;
  for (const auto& parameter : optimizer.array().lane_parameters(lane)) {
    auto gradient = parameter.grad();
    if (gradient.defined()) {
      if (gradient.is_sparse()) gradient = gradient.to_dense();
      gradient = gradient.detach().unsqueeze(0);
      present.push_back(gradient);
    }
    gradients.push_back(std::move(gradient));
  }
  if (!max_norm.empty() && !present.empty()) optim::clip_gradients(present, {max_norm[lane]});
  optimizer.update(lane, 1, gradients);
}

// Leaves no gradient behind, also where a lane fails.
class ClearAtEnd {
 public:
  explicit ClearAtEnd(Arrays arrays) : arrays_(arrays) {}
  ~ClearAtEnd() {
    if (armed_)
      for (auto* array : arrays_) array->zero_grad();
  }
  ClearAtEnd(const ClearAtEnd&) = delete;
  ClearAtEnd& operator=(const ClearAtEnd&) = delete;
  void disarm() { armed_ = false; }

 private:
  Arrays arrays_;
  bool armed_ = true;
};

struct Call {
  Arrays arrays;
  optim::Optimizer& optimizer;
  const LaneStep& step;
  const StepOptions& options;
  bool first = true;   ///< Begins with cleared gradients.
  bool update = true;  ///< Ends with the update.
};

StepOutput run(const Call& call, std::span<const Input> inputs, base::Workers* workers) {
  static const std::string who = "train::train_step";
  const auto& arrays = call.arrays;
  check_inputs(inputs, *arrays[0], who);
  const auto lanes = arrays[0]->lanes();
  const auto max_norm = call.options.max_norm ? call.options.max_norm->of_lanes(lanes, "max_norm") : std::vector<double>{};
  if (call.first)
    for (auto* array : arrays) array->zero_grad();
  ClearAtEnd clear(arrays);
  Results results(lanes);
  for_each_lane(arrays, workers, who, [&](std::int64_t lane) {
    results.take(lane, forward_backward(call.step, lane, inputs, who));
    if (call.update) update_lane(call.optimizer, lane, max_norm);
    for (const auto* array : arrays)
      if (call.update || array != &call.optimizer.array()) drop_gradients(*array, lane);
  });
  clear.disarm();
  return results.stacked(who);
}

}  // namespace

struct PlainStep::State {
  std::vector<lanes::ArrayBase*> arrays;
  optim::Optimizer& optimizer;
  LaneStep step;
  StepOptions options;
  plan::Plan plan;
  std::unique_ptr<base::Workers> workers{};
  std::int64_t pending = 0;

  base::Workers& workers_now() {
    const auto fit = plan::fitted({.width = 1, .workers = plan.workers}, arrays[0]->lanes());
    if (!workers || workers->count() != fit.workers || workers->intra_op_threads() != plan.intra_op_threads)
      workers = std::make_unique<base::Workers>(fit.workers, plan.intra_op_threads);
    return *workers;
  }
};

PlainStep::PlainStep(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options, plan::Plan plan)
    : state_(new State{std::move(arrays), optimizer, std::move(step), std::move(options), std::move(plan)}) {
  check_arrays(state_->arrays, &optimizer, "train::PlainStep");
  HFTA_CHECK(state_->options.accumulate >= 1, "train::PlainStep: expected accumulate of at least 1, got ", state_->options.accumulate);
  if (state_->options.max_norm) state_->options.max_norm->of_lanes(state_->arrays[0]->lanes(), "max_norm");
}

PlainStep::~PlainStep() = default;
PlainStep::PlainStep(PlainStep&&) noexcept = default;

StepOutput PlainStep::operator()(std::span<const Input> inputs) {
  auto& s = *state_;
  check_arrays(s.arrays, &s.optimizer, "train::PlainStep");
  const auto waiting = std::exchange(s.pending, 0);  // A call that fails clears the gradients that waited.
  const bool update = waiting + 1 == s.options.accumulate;
  auto output = run({s.arrays, s.optimizer, s.step, s.options, waiting == 0, update}, inputs, &s.workers_now());
  if (!update) s.pending = waiting + 1;
  return output;
}

std::int64_t PlainStep::pending() const { return state_->pending; }
void PlainStep::take_over(std::int64_t pending) {
  if (pending > 0) state_->optimizer.array().stack_gradients();
  state_->pending = pending;
}

const plan::Plan& PlainStep::plan() const { return state_->plan; }
void PlainStep::set_plan(plan::Plan plan) { state_->plan = std::move(plan); }

StepOutput train_step(Arrays arrays, optim::Optimizer& optimizer, const LaneStep& step, std::span<const Input> inputs, const StepOptions& options,
                      base::Workers* workers) {
  check_arrays(arrays, &optimizer, "train::train_step");
  HFTA_CHECK(options.accumulate == 1, "train::train_step: expected accumulate 1 (train::PlainStep and hfta::record count calls), got ", options.accumulate);
  return run({arrays, optimizer, step, options}, inputs, workers);
}

StepOutput backward(Arrays arrays, const LaneStep& step, std::span<const Input> inputs, base::Workers* workers) {
  static const std::string who = "train::backward";
  check_arrays(arrays, nullptr, who);
  check_inputs(inputs, *arrays[0], who);
  for (auto* array : arrays) array->stack_gradients();
  Results results(arrays[0]->lanes());
  for_each_lane(arrays, workers, who, [&](std::int64_t lane) { results.take(lane, forward_backward(step, lane, inputs, who)); });
  for (auto* array : arrays) array->stack_gradients();
  return results.stacked(who);
}

std::vector<at::Tensor> evaluate(Arrays arrays, const LaneFunction& function, std::span<const Input> inputs, base::Workers* workers) {
  static const std::string who = "train::evaluate";
  check_arrays(arrays, nullptr, who);
  check_inputs(inputs, *arrays[0], who);
  std::vector<std::vector<at::Tensor>> results(arrays[0]->lanes());
  for_each_lane(arrays, workers, who, [&](std::int64_t lane) {
    const at::NoGradGuard no_grad;
    const auto mine = inputs_of_lane(inputs, lane);
    results[lane] = function(lane, mine);
  });
  return stack_results(results, who);
}

}  // namespace hfta::train
