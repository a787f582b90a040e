#pragma once

#include <vector>

#include "hfta/train/trainer_state.h"

namespace hfta::train {

/// One epoch of training steps: sums the lanes' losses and notes whose became NaN.
class Epoch {
 public:
  Epoch(Trainer::State& state, BatchSource& source, const Callbacks& callbacks) : state_(state), source_(source), callbacks_(callbacks) {}

  /// What the steps' callbacks and the flag ask for; `StopNow`: the epoch was left.
  Request run();

  std::int64_t steps() const { return steps_; }
  /// Mean training loss over the epoch's items, by position in the array.
  std::vector<double> mean_losses() const;
  /// By position in the array: the step at which the loss became NaN, or -1.
  const std::vector<std::int64_t>& failed_at() const { return failed_at_; }

 private:
  /// Steps on batches that end with an update. @returns what the callbacks ask for.
  Request run(const std::vector<TrainBatch>& batches);
  void add(const at::Tensor& losses, std::int64_t items);
  bool all_failed() const;
  Request asked(const at::Tensor& losses) const;

  Trainer::State& state_;
  BatchSource& source_;
  const Callbacks& callbacks_;
  std::function<void()> after_update_{};
  std::int64_t steps_ = 0, items_ = 0;
  std::vector<double> sums_{};
  at::Tensor device_sums_{};  // Off the CPU, where reading each step's losses would make the host wait.
  std::vector<std::int64_t> failed_at_{};
};

}  // namespace hfta::train
