#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "hfta/optim/optimizer.h"

namespace hfta::optim {

/// What is kept for one parameter of all lanes.
struct ParameterState {
  std::vector<at::Tensor> slots;        ///< Stacked like the parameter; empty until a lane's first update that keeps state.
  std::atomic<bool> allocated{false};   ///< `slots` may be read.
  at::Tensor staging;                   ///< Gradients that do not lie in memory as the parameter does are copied here.
  std::atomic<bool> staged{false};      ///< `staging` may be read.
  std::vector<std::int64_t> steps;      ///< Updates, by lane.
  std::vector<std::uint8_t> has_state;  ///< By lane; bytes, since threads write those of their own lanes.
};

/// One parameter group's hyper-parameters.
struct GroupState {
  std::vector<double> hyper;        ///< `[lane][hyper]`, flat.
  std::vector<double> of_new_lane;  ///< By hyper.
};

struct Optimizer::State {
  lanes::ArrayBase& array;
  Definition definition;
  std::vector<GroupState> groups;
  std::vector<std::size_t> group_of;  ///< By parameter.
  std::vector<std::size_t> order;     ///< Parameters as `torch.optim` numbers them: group by group.
  std::deque<ParameterState> parameters;
  std::vector<std::int64_t> steps;  ///< By lane.
  UpdateLowering lowering = UpdateLowering::Rows;
  std::mutex allocation;

  State(lanes::ArrayBase& of, Definition what) : array(of), definition(std::move(what)) {}

  std::string title() const { return "optim::" + definition.name; }
  std::size_t hypers() const { return definition.hyper.size(); }
  std::span<const double> hyper(std::size_t group, std::int64_t lane) const { return of_lane(groups[group].hyper, lane); }
  /// A lane's of a group's hyper-parameters.
  std::span<const double> of_lane(const std::vector<double>& of_group, std::int64_t lane) const {
    return {of_group.data() + static_cast<std::size_t>(lane) * hypers(), hypers()};
  }
  /// @throws InvalidArgument listing the known names.
  std::size_t index_of(const std::string& hyper) const;
  void check_lane(std::int64_t lane) const;
  void check_group(std::size_t group) const;
  /// @throws InvalidArgument when the hyper-parameter does not take the value.
  void check_value(std::size_t hyper, double value, std::int64_t lane) const;
  void set(std::size_t group, std::size_t hyper, const PerLane& value);
  /// Sorts the parameters into groups.
  void assign(const std::vector<ParameterGroup>& chosen);
  /// The parameter's state tensors are there afterwards; safe on several threads.
  void allocate(std::size_t parameter);
  /// Rows `[lane, lane + gradient.size(0))` of the parameter's staging stack, with the gradient's values.
  at::Tensor stage(std::size_t parameter, std::int64_t lane, const at::Tensor& gradient);
};

}  // namespace hfta::optim
