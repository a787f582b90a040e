#pragma once

#include <optional>
#include <utility>

#include "hfta/train/plain_step.h"
#include "hfta/train/typed.h"

namespace hfta::train {

/// A step as users call it: `Tensor losses = step(x, y)`, or a `StepOutput` where the function returns more than a loss.
template <typename Step, typename Result>
class TypedStep {
 public:
  explicit TypedStep(Step step) : step_(std::move(step)) {}

  auto operator()(const typed::IsInput auto&... inputs) {
    const std::array<Input, sizeof...(inputs)> all{typed::input(inputs)...};
    return typed::step_output<Result>(step_(std::span<const Input>(all)));
  }
  /// Recorded steps on batches in turn, `step.run({batch(x0, y0), batch(x1, y1)})`, as `RecordedStep::run`. @returns what as many calls give.
  auto run(std::span<const Batch> batches) requires requires(Step& step, std::vector<StepOutput>& outputs) { step.run(batches, outputs); }
  {
    std::vector<StepOutput> outputs;
    step_.run(batches, outputs);
    std::vector<decltype(typed::step_output<Result>(StepOutput()))> results;
    for (auto& output : outputs) results.push_back(typed::step_output<Result>(std::move(output)));
    return results;
  }
  auto run(const std::vector<Batch>& batches) { return run(std::span<const Batch>(batches)); }
  Step& operator*() { return step_; }
  Step* operator->() { return &step_; }
  const Step* operator->() const { return &step_; }

 private:
  Step step_;
};

namespace typed {

template <typename Fn, typename ArrayTuple>
using ResultOf = ResultWith<Fn, ArrayTuple, inputs_of<Fn, decltype(models(std::declval<ArrayTuple>(), 0))>()>;

}  // namespace typed
}  // namespace hfta::train

namespace hfta {

/// The inputs of one step of several: `step.run({batch(x0, y0), batch(x1, y1)})`.
train::Batch batch(const train::typed::IsInput auto&... inputs) { return {train::typed::input(inputs)...}; }

/// One plain training step of every lane: `fn(Net&, const Tensor&...)` is written for one model and returns its scalar loss, or a
/// pair, tuple or `StepResult` of the loss and extras. Plain tensors are shared by all lanes, `per_lane(x)` has a lane axis.
/// Several arrays: `train_step(std::tie(g, d), adam_d, fn, x)` calls `fn(G&, D&, x)` and updates the optimizer's array only.
/// @returns the losses `[lanes]`, or a `StepOutput` where `fn` returns extras.
template <train::typed::Arrays A, typename Fn>
auto train_step(A&& arrays, optim::Optimizer& optimizer, Fn&& fn, const train::typed::IsInput auto&... inputs) {
  const auto tied = train::typed::tied(arrays);
  using Result = train::typed::ResultWith<Fn, decltype(tied), sizeof...(inputs)>;
  const std::array<train::Input, sizeof...(inputs)> all{train::typed::input(inputs)...};
  const auto step = train::typed::step_with<sizeof...(inputs)>(tied, fn);
  return train::typed::step_output<Result>(train::train_step(train::typed::pointers(tied), optimizer, step, all));
}

/// As `train_step` with options of the step and workers of the caller's plan, to call again and again: it counts accumulated calls.
template <train::typed::Arrays A, typename Fn>
auto plain(A&& arrays, optim::Optimizer& optimizer, Fn fn, train::StepOptions options = {}, plan::Plan plan = {.recorded = false}) {
  const auto tied = train::typed::tied(arrays);
  using Result = train::typed::ResultOf<Fn, decltype(tied)>;
  return train::TypedStep<train::PlainStep, Result>(train::PlainStep(train::typed::pointers(tied), optimizer,
                                                                     train::typed::lane_step(tied, std::move(fn)), std::move(options), std::move(plan)));
}

/// Forward and backward only: adds to the arrays' stacked gradients. @returns as `train_step`.
template <train::typed::Arrays A, typename Fn>
auto backward(A&& arrays, Fn&& fn, const train::typed::IsInput auto&... inputs) {
  const auto tied = train::typed::tied(arrays);
  using Result = train::typed::ResultWith<Fn, decltype(tied), sizeof...(inputs)>;
  const std::array<train::Input, sizeof...(inputs)> all{train::typed::input(inputs)...};
  const auto step = train::typed::step_with<sizeof...(inputs)>(tied, fn);
  return train::typed::step_output<Result>(train::backward(train::typed::pointers(tied), step, all));
}

/// `fn(Net&, const Tensor&...)` for every lane without gradients, in the arrays' present mode. @returns what `fn` returns (a tensor,
/// or tuples, pairs and vectors of tensors), each tensor with a leading lane axis.
template <train::typed::Arrays A, typename Fn>
auto evaluate(A&& arrays, Fn&& fn, const train::typed::IsInput auto&... inputs) {
  const auto tied = train::typed::tied(arrays);
  using Result = train::typed::ResultWith<Fn, decltype(tied), sizeof...(inputs)>;
  const std::array<train::Input, sizeof...(inputs)> all{train::typed::input(inputs)...};
  std::optional<Result> shape;
  const train::LaneFunction function = [&](std::int64_t lane, std::span<const at::Tensor> mine) {
    auto nets = train::typed::models(tied, lane);
    Result result = train::typed::call_on(fn, nets, mine, std::make_index_sequence<sizeof...(inputs)>());
    std::vector<at::Tensor> flat;
    train::typed::flatten(result, flat);
    if (lane == 0) shape = std::move(result);
    return flat;
  };
  const auto stacked = train::evaluate(train::typed::pointers(tied), function, all);
  std::span<const at::Tensor> values(stacked);
  return train::typed::refill(*shape, values);
}

/// `fn(Net&, const Tensor&...)` as a function of a lane: a step for `train::Trainer`.
template <train::typed::Arrays A, typename Fn>
train::LaneStep lane_step(A&& arrays, Fn fn) {
  return train::typed::lane_step(train::typed::tied(arrays), std::move(fn));
}
/// The same without a loss: metrics for `train::Trainer`, each tensor of the result (a tuple's or vector's) a scalar.
template <train::typed::Arrays A, typename Fn>
train::LaneFunction lane_function(A&& arrays, Fn fn) {
  return train::typed::lane_function(train::typed::tied(arrays), std::move(fn));
}

}  // namespace hfta
