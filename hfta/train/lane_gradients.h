#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// Forward and backward of a lane as a function to record: its results are the loss, the extras, and a gradient per parameter of the wanted
/// arrays (undefined where there is none). Leaves no gradient behind.
class LaneGradients {
 public:
  /// @param wanted of `arrays`, in their order.
  LaneGradients(std::vector<lanes::ArrayBase*> arrays, std::vector<lanes::ArrayBase*> wanted, LaneStep step)
      : arrays_(std::move(arrays)), wanted_(std::move(wanted)), step_(std::move(step)) {}

  std::vector<at::Tensor> run(std::int64_t lane, std::span<const at::Tensor> inputs);

  /// Copies a group's losses and extras out of its results. Groups may come from several threads.
  void collect(StepOutput& output, std::int64_t first, std::span<const at::Tensor> results);
  /// The gradients among a group's results.
  std::span<const at::Tensor> gradients(std::span<const at::Tensor> results) const { return results.subspan(1 + extras_); }
  /// Adds a group's gradients to the stacked ones, which move with the lanes. A lane's own gradient is its row; undefined where it has none.
  void accumulate(std::int64_t first, std::span<const at::Tensor> results);

 private:
  std::vector<at::Tensor> trainable(std::int64_t lane) const;
  at::Tensor sum_of(const lanes::Stacked& stack, std::int64_t lanes);

  std::vector<lanes::ArrayBase*> arrays_, wanted_;
  LaneStep step_;
  std::size_t extras_ = 0;
  std::mutex mutex_;
};

}  // namespace hfta::train
