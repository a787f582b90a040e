#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hfta::lanes {

/// Every lane's tensor of one name, stacked: `[lanes, ...]`. Each row starts on 64 bytes, so the stride of the lane axis may be
/// larger than a row; the rest of the strides are the single tensor's.
struct Stacked {
  std::string name;        ///< Dotted, as in the module's `named_parameters()`.
  at::Tensor tensor;       ///< A leaf; `.grad()` is the stacked gradient where plain steps left one.
  bool trainable = false;  ///< Requires gradients; false for buffers and frozen parameters.
};

/// Told when lanes of the array move, so that what is kept per lane (optimizer state, recordings) moves with them.
class LaneFollower {
 public:
  virtual ~LaneFollower() = default;
  /// Lane `i` is now what lane `from[i]` was; `from[i] < 0` marks a new lane.
  virtual void lanes_moved(const std::vector<std::int64_t>& from) = 0;
  /// Lane `target` became a copy of lane `source`.
  virtual void lane_copied(std::int64_t source, std::int64_t target) = 0;
  /// The array's tensors are on another device or of another type now.
  virtual void tensors_replaced() = 0;
};

/// Lanes of one architecture, stored stacked: the part that does not know the model's type.
///
/// Each lane is an ordinary module whose tensors are rows of the stacked ones: running, reading or writing the module runs,
/// reads or writes the array. A tensor registered twice (tied) is stacked once, under its first name.
class ArrayBase {
 public:
  using Module = std::shared_ptr<torch::nn::Module>;
  using Factory = std::function<Module(std::int64_t lane)>;

  /// Builds lane `i` right after its generator was seeded with `seeds[i]`, as `torch::manual_seed(seed)` would.
  /// @throws InvalidArgument when a lane's structure differs from lane 0's, naming the first difference.
  ArrayBase(const Factory& factory, std::vector<std::uint64_t> seeds);
  virtual ~ArrayBase();
  ArrayBase(const ArrayBase&) = delete;
  ArrayBase& operator=(const ArrayBase&) = delete;

  std::int64_t lanes() const;
  const std::vector<std::uint64_t>& seeds() const;
  /// Grows by one whenever lanes move or tensors are replaced: what was recorded or viewed before is stale then.
  std::uint64_t generation() const;
  c10::Device device() const;

  const std::vector<Stacked>& parameters() const;
  const std::vector<Stacked>& buffers() const;
  /// The lane's module, its tensors rows of the stacks. @throws InvalidArgument for a lane out of range.
  const Module& module(std::int64_t lane) const;
  /// The lane's own tensors, in the order of `parameters()` and `buffers()`.
  const std::vector<at::Tensor>& lane_parameters(std::int64_t lane) const;
  const std::vector<at::Tensor>& lane_buffers(std::int64_t lane) const;
  /// The generator that the lane's random operators draw from; it goes on from where building the lane left it.
  at::Generator& generator(std::int64_t lane);

  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const;
  /// Moves all stacks; the lanes' modules follow. @throws Unsupported where the device is not there.
  void to(c10::Device device);

  /// Keeps these lanes, in this order, and drops the rest (dropped modules keep a copy of their tensors of their own).
  void keep(const std::vector<std::int64_t>& lanes);
  /// Adds lanes behind the last one.
  void append(const Factory& factory, const std::vector<std::uint64_t>& seeds);
  /// Overwrites lane `target` with lane `source`: parameters, buffers, generator state.
  void copy_lane(std::int64_t source, std::int64_t target);

  /// Clears the stacked gradients (and the lanes' own, which are their rows).
  void zero_grad();
  /// Registers and forgets a follower; the array does not own it.
  void follow(LaneFollower* follower);
  void unfollow(LaneFollower* follower);
  /// Puts rebound or replaced tensors of a lane (`buffer = buffer * 2` in user code) back into its rows, value kept.
  /// @returns the names of those that had left their rows.
  std::vector<std::string> restore_rows(std::int64_t lane);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A lane as `Array::lane` gives it: a handle that says so when the array's lanes have moved since.
template <typename Net>
class Lane {
 public:
  Lane(const ArrayBase& array, std::int64_t lane, Net net) : array_(&array), lane_(lane), generation_(array.generation()), net_(std::move(net)) {}
  Net& operator*() { return check(), net_; }
  auto* operator->() { return check(), net_.get(); }
  operator Net() { return check(), net_; }  // NOLINT(google-explicit-constructor): a lane is used as the plain module it is

 private:
  void check() const;
  const ArrayBase* array_;
  std::int64_t lane_;
  std::uint64_t generation_;
  Net net_;
};

}  // namespace hfta::lanes
