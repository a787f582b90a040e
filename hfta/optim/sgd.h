#pragma once

#include "hfta/optim/optimizer.h"

namespace hfta::optim {

struct SGDOptions {
  PerLane lr = 1e-3;
  PerLane momentum = 0;      ///< Of the buffer `b = momentum * b + (1 - dampening) * g`; a lane with 0 keeps none.
  PerLane dampening = 0;
  PerLane weight_decay = 0;  ///< Added to the gradient.
  bool nesterov = false;
  bool maximize = false;
  std::vector<ParameterGroup> groups = {};
};

/// Stochastic gradient descent with momentum: `p -= lr * b`.
class SGD final : public Optimizer {
 public:
  explicit SGD(lanes::ArrayBase& array, const SGDOptions& options = {});

 private:
  LaneNumbers numbers(std::span<const double> hyper, std::int64_t step, bool has_state) const override;
  void update_rows(const Rows& rows, const LaneNumbers* numbers) const override;
  void update_stacked(const StackedRows& rows, const StackedNumbers& numbers) const override;

  bool nesterov_, maximize_;
};

}  // namespace hfta::optim
