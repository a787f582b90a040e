#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/optim/clip.h"
#include "hfta/optim/definition.h"
#include "hfta/optim/per_lane.h"

namespace hfta::optim {

/// Some of the parameters with hyper-parameters of their own (bias and norm without decay).
struct ParameterGroup {
  std::function<bool(const std::string& name, const at::Tensor& row)> takes;  ///< Chooses parameters not yet taken by an earlier group.
  std::map<std::string, PerLane> hyper;                                       ///< What differs from the optimizer's own values.
};

/// Bias, norm and other parameters of at most one axis, without weight decay.
ParameterGroup without_decay();

/// Hyper-parameters of all lanes at one time: `[group]`, then `[lane][hyper]` flat.
using Hypers = std::vector<std::vector<double>>;

/// How an update is made.
struct UpdateOptions {
  std::span<const double> scales{};  ///< Each lane's gradients are multiplied by its entry, if there are any.
  const Hypers* hypers = nullptr;    ///< Of all lanes, where the present ones are not meant.
  /// A root may be another one within an ulp than LibTorch's, where that is faster.
  bool rounds_freely = false;
};

/// Ways to compute an update.
enum class UpdateLowering {
  Rows,     ///< Our kernels: one pass over each lane's row. CPU, float and double; the others are updated as `Stacked`.
  Stacked,  ///< LibTorch's operators on all lanes' rows at once. Any device and type.
};
inline constexpr std::array kUpdateLowerings{UpdateLowering::Rows, UpdateLowering::Stacked};

/// An optimizer of an array: each lane is updated with its own hyper-parameters, state and step count. Every hyper-parameter can
/// change at any step. Parameters without a gradient are skipped and their state stays empty. Must not outlive its array.
///
/// Group 0 has the optimizer's own values and all parameters that no further group takes.
class Optimizer : public lanes::LaneFollower {
 public:
  ~Optimizer() override;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  lanes::ArrayBase& array() const;
  /// `torch.optim`'s name of the class: "Adam".
  const std::string& name() const;

  /// Hyper-parameter `name` ("lr", "weight_decay") of a lane in a parameter group. An unknown name lists the known ones.
  /// An added lane's is NaN where the optimizer was given a list: it must be set before the lane's first update.
  double get(const std::string& name, std::int64_t lane, std::size_t group = 0) const;
  void set(const std::string& name, std::int64_t lane, double value, std::size_t group = 0);
  void set(const std::string& name, const PerLane& value);  ///< All groups.
  std::vector<std::string> hyper_names() const;
  /// All lanes' values as they are now, for an update that runs later.
  Hypers hypers() const;
  std::size_t groups() const;
  /// The group of each parameter, in the array's order.
  const std::vector<std::size_t>& group_of_parameters() const;

  /// Updates of the lane so far (a loaded state dict without step counts, SGD's, leaves it as it is).
  std::int64_t steps(std::int64_t lane) const;

  /// Updates lanes `[first, first + width)` from gradients `[width, ...]`, one entry per parameter of the array (undefined: skipped).
  /// Only reads the gradients. Lanes are independent: may run for disjoint lanes on several threads at once.
  void update(std::int64_t first, std::int64_t width, std::span<const at::Tensor> gradients, const UpdateOptions& options = {});
  /// Updates all lanes from the gradients on the array, stacked ones or the lanes' own; a lane without a gradient is skipped.
  void step();
  void zero_grad();

  /// A lane's state as `torch.optim`'s `state_dict()`: {"state": {0: {...}}, "param_groups": [...]}; loads in stock PyTorch.
  c10::IValue lane_state_dict(std::int64_t lane) const;
  /// The way back; tuples may be lists. @throws InvalidArgument before any write when a shape or a key does not fit, naming it.
  void load_lane_state_dict(std::int64_t lane, const c10::IValue& state);

  UpdateLowering lowering() const;
  void use(UpdateLowering lowering);
  /// Bytes of the state tensors, all lanes together.
  std::int64_t state_bytes() const;

  void lanes_moved(const std::vector<std::int64_t>& from) override;
  void lane_copied(std::int64_t source, std::int64_t target) override;
  void tensors_replaced() override;

 protected:
  Optimizer(lanes::ArrayBase& array, Definition definition, const std::map<std::string, PerLane>& hyper, const std::vector<ParameterGroup>& groups);

  /// A lane's numbers for its update number `step` (from 1) of a parameter; `hyper` in the definition's order.
  virtual LaneNumbers numbers(std::span<const double> hyper, std::int64_t step, bool has_state) const = 0;
  virtual void update_rows(const Rows& rows, const LaneNumbers* numbers) const = 0;
  virtual void update_stacked(const StackedRows& rows, const StackedNumbers& numbers) const = 0;

 private:
  struct State;
  struct Pass;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::optim
