#pragma once

#include "hfta/optim/optimizer.h"

namespace hfta::optim {

struct AdadeltaOptions {
  PerLane lr = 1.0;
  PerLane rho = 0.9;  ///< Of the running averages of squared gradients and squared updates.
  PerLane eps = 1e-6;
  PerLane weight_decay = 0;  ///< Added to the gradient.
  bool maximize = false;
  std::vector<ParameterGroup> groups = {};
};

/// `p -= lr * sqrt(u + eps) / sqrt(v + eps) * g`.
/// @par Source Zeiler, ADADELTA: An Adaptive Learning Rate Method, algorithm 1.
class Adadelta final : public Optimizer {
 public:
  explicit Adadelta(lanes::ArrayBase& array, const AdadeltaOptions& options = {});

 private:
  LaneNumbers numbers(std::span<const double> hyper, std::int64_t step, bool has_state) const override;
  void update_rows(const Rows& rows, const LaneNumbers* numbers) const override;
  void update_stacked(const StackedRows& rows, const StackedNumbers& numbers) const override;

  bool maximize_;
};

}  // namespace hfta::optim
