#pragma once

#include <memory>
#include <span>
#include <vector>

#include "hfta/lanes/array.h"

namespace hfta::lanes {

/// The modules by lane, shared with handles to lanes so that these can tell where theirs is now.
struct Roster {
  std::vector<ArrayBase::Module> modules;
};

/// What the array keeps for one lane.
struct LaneEntry {
  ArrayBase::Module module;
  std::uint64_t seed = 0;
  std::vector<at::Generator> generators;  ///< One for each device that the lane has been on.
  ModuleTensors tensors;

  at::Generator& generator(c10::Device device);
};

struct ArrayBase::State {
  std::shared_ptr<Roster> roster = std::make_shared<Roster>();
  std::vector<LaneEntry> lanes;
  std::vector<std::uint64_t> seeds;
  std::vector<Registration> registrations;
  std::vector<Stacked> parameters, buffers;
  std::vector<at::Tensor> attached;  ///< Per parameter: the stacked gradient whose rows the lanes' gradients are, if any.
  std::vector<LaneFollower*> followers;
  std::uint64_t generation = 0;
  c10::Device device = c10::kCPU;

  std::int64_t count() const { return static_cast<std::int64_t>(lanes.size()); }
  LaneEntry& at(std::int64_t lane);
  /// The stacks that `parameters`, `buffers` and the stacked gradients become; the latter undefined where there are none.
  struct Stacks {
    std::vector<at::Tensor> parameters, buffers, gradients;
  };
  /// New stacks with row `i` copied from row `from[i]` of the present ones, zeros for `from[i] < 0`.
  Stacks moved(const std::vector<std::int64_t>& from, c10::Device target);
  /// Builds lanes `first, first + 1, ...` into rows of `stacks` (made for `total` lanes with lane 0); the array itself is not touched.
  std::vector<LaneEntry> build(const Factory& factory, std::span<const std::uint64_t> seeds, std::int64_t first, std::int64_t total, Stacks& stacks) const;
  void check_own(const LaneEntry& entry, std::int64_t lane, const std::vector<LaneEntry>& added, const Stacks& stacks) const;
  /// Takes new stacks and their lanes in use.
  void commit(Stacks stacks, std::vector<LaneEntry> entries);
  /// Brings seeds and roster in line with the lanes.
  void list_lanes();
};

}  // namespace hfta::lanes
