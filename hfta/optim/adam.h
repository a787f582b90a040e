#pragma once

#include "hfta/optim/optimizer.h"

namespace hfta::optim {

struct AdamOptions {
  PerLane lr = 1e-3;
  PerLane beta1 = 0.9;
  PerLane beta2 = 0.999;
  PerLane eps = 1e-8;
  PerLane weight_decay = 0;  ///< Added to the gradient.
  bool amsgrad = false;      ///< Divides by the root of the largest second moment so far.
  bool maximize = false;
  std::vector<ParameterGroup> groups = {};
};

/// `p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)`.
/// @par Source Kingma and Ba, Adam: A Method for Stochastic Optimization, algorithm 1; Reddi et al., On the Convergence of Adam and Beyond.
class Adam : public Optimizer {
 public:
  explicit Adam(lanes::ArrayBase& array, const AdamOptions& options = {}) : Adam(array, "Adam", options, false) {}

 protected:
  Adam(lanes::ArrayBase& array, const char* name, const AdamOptions& options, bool decoupled);

 private:
  LaneNumbers numbers(std::span<const double> hyper, std::int64_t step, bool has_state) const override;
  void update_rows(const Rows& rows, const LaneNumbers* numbers) const override;
  void update_stacked(const StackedRows& rows, const StackedNumbers& numbers) const override;

  bool maximize_, decoupled_;
};

struct AdamWOptions {
  PerLane lr = 1e-3;
  PerLane beta1 = 0.9;
  PerLane beta2 = 0.999;
  PerLane eps = 1e-8;
  PerLane weight_decay = 1e-2;  ///< Decoupled: the parameter is first multiplied by `1 - lr * weight_decay`.
  bool amsgrad = false;
  bool maximize = false;
  std::vector<ParameterGroup> groups = {};
};

/// Adam with decoupled weight decay.
/// @par Source Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2.
class AdamW final : public Adam {
 public:
  explicit AdamW(lanes::ArrayBase& array, const AdamWOptions& options = {});
};

}  // namespace hfta::optim
