#pragma once

#include "hfta/train/api.h"
#include "hfta/train/recorded_step.h"

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

}  // namespace hfta
