#pragma once

#include <map>
#include <memory>
#include <vector>

#include "hfta/train/api.h"
#include "hfta/train/recorded_backward.h"
#include "hfta/train/recorded_evaluation.h"
#include "hfta/train/recorded_step.h"

namespace hfta::train {

/// A recorded evaluation as users call it: `auto logits = evaluation(x)` gives what the function returns, each tensor `[lanes, ...]`.
template <typename Result>
class TypedEvaluation {
 public:
  template <typename Tied, typename Fn>
  TypedEvaluation(const Tied& tied, Fn fn, plan::Plan plan)
      : nests_(std::make_shared<Nests>()), evaluation_(typed::pointers(tied), noting_nest(tied, std::move(fn), nests_), std::move(plan)) {}

  Result operator()(const typed::IsInput auto&... inputs) {
    const std::array<Input, sizeof...(inputs)> all{typed::input(inputs)...};
    nests_->shapes.clear();
    for (const auto& input : all) {
      const auto sizes = input.tensor.defined() ? input.tensor.sizes() : c10::IntArrayRef();
      nests_->shapes.insert(nests_->shapes.end(), sizes.begin(), sizes.end());
      nests_->shapes.push_back(-1);
    }
    const auto stacked = evaluation_(std::span<const Input>(all));
    std::span<const at::Tensor> values(stacked);
    return typed::refill(nests_->of_shapes.at(nests_->shapes), values);
  }
  RecordedEvaluation* operator->() { return &evaluation_; }
  const RecordedEvaluation* operator->() const { return &evaluation_; }

 private:
  /// What a recording's flat results were a nest of, without the tensors.
  struct Nests {
    std::vector<std::int64_t> shapes;  // of the present inputs, -1 behind each
    std::map<std::vector<std::int64_t>, Result> of_shapes;
  };

  template <typename Tied, typename Fn>
  static LaneFunction noting_nest(const Tied& tied, Fn fn, std::shared_ptr<Nests> nests) {
    static constexpr auto kInputs = typed::inputs_of<Fn, decltype(typed::models(tied, 0))>();
    static_assert(kInputs <= typed::kMostInputs, "the function takes the arrays' models by reference, then up to 8 tensors: fn(Net&, const Tensor&...)");
    return [tied, fn = std::move(fn), nests = std::move(nests)](std::int64_t lane, std::span<const at::Tensor> inputs) mutable {
      HFTA_CHECK(inputs.size() == kInputs, "train::record: expected ", kInputs, " inputs as the function takes, got ", inputs.size());
      auto nets = typed::models(tied, lane);
      const Result result = typed::call_on(fn, nets, inputs, std::make_index_sequence<kInputs>());
      std::vector<at::Tensor> flat;
      typed::flatten(result, flat);
      const std::vector<at::Tensor> none(flat.size());
      std::span<const at::Tensor> empty(none);
      if (lane == 0) nests->of_shapes.insert_or_assign(nests->shapes, typed::refill(result, empty));
      return flat;
    };
  }

  std::shared_ptr<Nests> nests_;
  RecordedEvaluation evaluation_;
};

}  // namespace hfta::train

namespace hfta {

/// A training step recorded once per input shape and replayed from then on: `auto step = record(array, adam, fn); step(x, y)`.
/// `fn` as for `train_step`; several arrays as `std::tie(g, d)`. @returns a step that gives what `train_step` gives.
template <train::typed::Arrays A, typename Fn>
auto record(A&& arrays, optim::Optimizer& optimizer, Fn fn, train::StepOptions options = {}, plan::Plan plan = {}) {
  const auto tied = train::typed::tied(arrays);
  using Result = train::typed::ResultOf<Fn, decltype(tied)>;
  return train::TypedStep<train::RecordedStep, Result>(train::RecordedStep(train::typed::pointers(tied), optimizer,
                                                                           train::typed::lane_step(tied, std::move(fn)), std::move(options), std::move(plan)));
}

/// The same without an update: `auto pass = record_backward(array, fn); pass(x, y); sgd.step()`. Adds to the arrays' stacked gradients.
/// @returns a call that gives what `backward` gives.
template <train::typed::Arrays A, typename Fn>
auto record_backward(A&& arrays, Fn fn, plan::Plan plan = {}) {
  const auto tied = train::typed::tied(arrays);
  using Result = train::typed::ResultOf<Fn, decltype(tied)>;
  return train::TypedStep<train::RecordedBackward, Result>(
      train::RecordedBackward(train::typed::pointers(tied), train::typed::lane_step(tied, std::move(fn)), std::move(plan)));
}

/// `evaluate` recorded once per input shape and mode: `array.eval(); auto evaluation = record_evaluate(array, fn); auto logits = evaluation(x)`.
/// @returns a call that gives what `evaluate` gives.
template <train::typed::Arrays A, typename Fn>
auto record_evaluate(A&& arrays, Fn fn, plan::Plan plan = {}) {
  const auto tied = train::typed::tied(arrays);
  return train::TypedEvaluation<train::typed::ResultOf<Fn, decltype(tied)>>(tied, std::move(fn), std::move(plan));
}

}  // namespace hfta
