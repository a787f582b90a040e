#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "hfta/lanes/array.h"

namespace hfta::optim {

/// A hyper-parameter: one number for all lanes, or one per lane.
class PerLane {
 public:
  PerLane(double value) : values_{value} {}                             // NOLINT(google-explicit-constructor)
  PerLane(std::vector<double> values) : values_(std::move(values)), per_lane_(true) {}  // NOLINT(google-explicit-constructor)
  PerLane(std::initializer_list<double> values) : values_(values), per_lane_(true) {}
  /// One entry per lane. @throws InvalidArgument naming `what` when the count is not `lanes`.
  std::vector<double> of_lanes(std::int64_t lanes, const std::string& what) const;

 private:
  std::vector<double> values_;
  bool per_lane_ = false;
};

/// Some of the parameters with hyper-parameters of their own (bias and norm without decay).
struct ParameterGroup {
  std::function<bool(const std::string& name, const at::Tensor& row)> takes;  ///< Chooses parameters not yet taken by an earlier group.
  std::map<std::string, PerLane> hyper;                                       ///< What differs from the optimizer's own values.
};

/// An optimizer of an array: each lane is updated with its own hyper-parameters, state and step count. Every hyper-parameter can
/// change at any step. Parameters without a gradient are skipped and their state stays empty.
class Optimizer : public lanes::LaneFollower {
 public:
  Optimizer(lanes::ArrayBase& array, std::map<std::string, PerLane> hyper, std::vector<ParameterGroup> groups = {});
  ~Optimizer() override;

  lanes::ArrayBase& array() const;
  /// `torch.optim`'s name of the class: "Adam".
  virtual std::string name() const = 0;

  /// Hyper-parameter `name` ("lr", "weight_decay") of a lane in a parameter group. An unknown name lists the known ones.
  double get(const std::string& name, std::int64_t lane, std::size_t group = 0) const;
  void set(const std::string& name, std::int64_t lane, double value, std::size_t group = 0);
  void set(const std::string& name, const PerLane& value);  ///< All groups.
  std::vector<std::string> hyper_names() const;
  std::size_t groups() const;

  /// Steps the lane has taken.
  std::int64_t steps(std::int64_t lane) const;

  /// Updates lanes `[first, first + width)` from gradients `[width, ...]`, one entry per parameter of the array (undefined: skipped).
  /// Lanes are independent: may run for disjoint lanes on several threads at once.
  void update(std::int64_t first, std::int64_t width, std::span<const at::Tensor> gradients);
  /// Updates all lanes from the array's stacked gradients.
  void step();
  void zero_grad();

  /// A lane's state as `torch.optim`'s `state_dict()`: {"state": {0: {...}}, "param_groups": [...]}; loads in stock PyTorch.
  c10::IValue lane_state_dict(std::int64_t lane) const;
  /// The way back. @throws InvalidArgument before any write when a shape or a key does not fit, naming it.
  void load_lane_state_dict(std::int64_t lane, const c10::IValue& state);

  void lanes_moved(const std::vector<std::int64_t>& from) override;
  void lane_copied(std::int64_t source, std::int64_t target) override;
  void tensors_replaced() override;

 protected:
  struct State;
  std::unique_ptr<State> state_;
};

/// Norm of each lane's gradients over all parameters `[width]`; scales them in place to at most `max_norm` (one entry per lane) as `torch.nn.utils.clip_grad_norm_` does.
at::Tensor clip_gradients(std::span<const at::Tensor> gradients, const std::vector<double>& max_norm);

}  // namespace hfta::optim
