#include "hfta/train/recorded_evaluation.h"

#include <ATen/core/grad_mode.h>

#include "hfta/train/group_outputs.h"

namespace hfta::train {
namespace {

/// The arrays, once they are known to fit together.
std::vector<lanes::ArrayBase*> checked(std::vector<lanes::ArrayBase*> arrays) {
  check_arrays(arrays, nullptr, "train::record");
  return arrays;
}

LaneFunction without_gradients(LaneFunction function) {
  return [function = std::move(function)](std::int64_t lane, std::span<const at::Tensor> inputs) {
    const at::NoGradGuard no_grad;
    return function(lane, inputs);
  };
}

}  // namespace

RecordedEvaluation::RecordedEvaluation(std::vector<lanes::ArrayBase*> arrays, LaneFunction function, plan::Plan plan, RecordOptions recording)
    : array_(checked(arrays)[0]), function_(std::move(arrays), without_gradients(std::move(function)), std::move(plan), std::move(recording)) {}

std::vector<at::Tensor> RecordedEvaluation::operator()(std::span<const Input> inputs) {
  check_inputs(inputs, *array_, "train::record");
  GroupOutputs outputs(array_->lanes());
  function_.run(inputs, [&](std::int64_t first, std::int64_t, std::span<const at::Tensor> results) { outputs.take(first, results); });
  return outputs.all();
}

}  // namespace hfta::train
