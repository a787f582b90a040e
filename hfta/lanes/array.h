#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hfta/lanes/layout.h"

namespace hfta::lanes {

/// Every lane's tensor of one name, stacked: `[lanes, ...]`. Each row starts on 64 bytes, so the stride of the lane axis may be
/// larger than a row; the rest of the strides are the single tensor's.
struct Stacked {
  std::string name;        ///< Dotted, as in the module's `named_parameters()`.
  at::Tensor tensor;       ///< A leaf; `.grad()` is the stacked gradient where plain steps left one.
  bool trainable = false;  ///< Requires gradients in one of the lanes at least; false for buffers and frozen parameters.
  at::Tensor shared{};     ///< `[...]`: the one value of all lanes, stored once, which `tensor` repeats; undefined where each lane has a row.

  std::int64_t stored_bytes() const { return static_cast<std::int64_t>((shared.defined() ? shared : tensor).nbytes()); }
};

struct Roster;

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
/// reads or writes the array. A tensor registered twice (tied) is stacked once, under its first name. Frozen parameters, and buffers of
/// frozen parts, that are equal in all lanes are stored once until a lane's is written: then each lane has a row.
class ArrayBase {
 public:
  using Module = std::shared_ptr<torch::nn::Module>;
  using Factory = std::function<Module(std::int64_t lane)>;

  /// Builds lane `i` right after its generator was seeded with `seeds[i]`, as `torch::manual_seed(seed)` would.
  /// @throws InvalidArgument when a lane's structure differs from lane 0's, naming the first difference; Unsupported for tensors that cannot be rows.
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
  /// Every name under which the modules register a tensor, in the order of Python's `state_dict()`; tied ones have the same index.
  const std::vector<Registration>& registrations() const;
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
  /// Converts the floating stacks to another floating type.
  void to(at::ScalarType type);

  /// Keeps these lanes, in this order, and drops the rest (dropped modules keep a copy of their tensors of their own).
  void keep(const std::vector<std::int64_t>& lanes);
  /// Adds lanes behind the last one; `factory` gets their indices. Where building one fails the array is as before.
  void append(const Factory& factory, const std::vector<std::uint64_t>& seeds);
  /// Overwrites lane `target` with lane `source`: parameters, gradients, buffers, generator state.
  void copy_lane(std::int64_t source, std::int64_t target);
  /// A module with memory of its own and the lane's values; `factory` builds it, without touching anyone's random numbers.
  Module free_copy(std::int64_t lane, const Factory& factory) const;

  /// Gathers the lanes' own gradients, which plain backward passes left, into the stacked ones, of which they are rows from then on;
  /// a gradient left on a stacked parameter is handed to the lanes likewise. A lane without a gradient has a row of zeros where others have one.
  void stack_gradients();
  /// Clears the stacked gradients and the lanes' own.
  void zero_grad();
  /// Registers and forgets a follower; the array does not own it.
  void follow(LaneFollower* follower);
  void unfollow(LaneFollower* follower);
  /// Puts rebound or replaced tensors of a lane (`buffer = buffer * 2` in user code) back into its rows, value kept.
  /// @returns the names of those that had left their rows. @throws InvalidArgument where the shape or type is another one now.
  std::vector<std::string> restore_rows(std::int64_t lane);

  /// Follows what was done to lanes since: parameters that were frozen or are to be trained now, and values that are stored once of which a
  /// lane's was written or is to be trained (each lane then has a row). Whatever runs lanes or reads the stacks calls it; no lane may run meanwhile.
  /// @throws InvalidArgument, the value put back, where a stacked tensor was written that repeats one value.
  void settle();
  /// Gives each lane a row of a value that is stored once.
  void unshare(const Stacked& stacked);
  /// Makes a lane look at what is stored once again, whatever it has written.
  void look_at_shared(std::int64_t lane);
  /// Overwrites all lanes of a parameter or buffer of this array with `[lanes, ...]`; it stays stored once where these are equal.
  void write(const Stacked& stacked, const at::Tensor& value);
  /// Grows by one whenever a value that was stored once becomes rows.
  std::uint64_t sharing() const;
  /// A number for which parameters of which lanes require gradients.
  std::uint64_t trained() const;

 private:
  friend class LanePlace;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::lanes
