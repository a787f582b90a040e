#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/lanes/leaf.h"

namespace hfta::lanes {

/// The modules by lane, shared with handles to lanes so that these can tell where theirs is now.
struct Roster {
  std::vector<ArrayBase::Module> modules;
};

/// What the array keeps for one lane.
struct LaneEntry {
  ArrayBase::Module module;
  std::uint64_t seed = 0;
  std::deque<at::Generator> generators;  ///< One for each device that the lane has been on; references to them last.
  ModuleTensors tensors;

  at::Generator& generator(c10::Device device);
};

/// Where stacks are to go.
struct Target {
  std::optional<c10::Device> device = std::nullopt;
  std::optional<at::ScalarType> type = std::nullopt;  ///< Of floating tensors.
};

struct ArrayBase::State {
  std::shared_ptr<Roster> roster = std::make_shared<Roster>();
  std::vector<LaneEntry> lanes;
  std::vector<std::uint64_t> seeds;
  std::vector<Registration> registrations;
  std::vector<Stacked> parameters, buffers;
  std::vector<at::Tensor> attached;  ///< Per parameter: the stacked gradient whose rows the lanes' gradients are, if any.
  std::vector<LaneFollower*> followers;
  std::uint64_t generation = 0, sharing = 0, trained = 0;
  c10::Device device = c10::kCPU;
  std::optional<at::ScalarType> type;  ///< What floating tensors were converted to, if they were.

  std::int64_t count() const { return static_cast<std::int64_t>(lanes.size()); }
  LaneEntry& at(std::int64_t lane);
  /// The stacks that `parameters`, `buffers` and the stacked gradients become; the latter undefined where there are none.
  struct Stacks {
    std::vector<Leaf> parameters, buffers;
    std::vector<at::Tensor> gradients;
  };
  /// New stacks with row `i` copied from row `from[i]` of the present ones, zeros for `from[i] < 0`; what is stored once stays so.
  Stacks moved(const std::vector<std::int64_t>& from, Target target = {}) const;
  /// Builds lanes `first, first + 1, ...` into rows of `stacks` (made for `total` lanes with lane 0); the array itself is not touched.
  std::vector<LaneEntry> build(const Factory& factory, std::span<const std::uint64_t> seeds, std::int64_t first, std::int64_t total, Stacks& stacks) const;
  /// Builds one lane's module from the generator's numbers and collects its tensors, in the array's type.
  std::pair<Module, ModuleTensors> build_lane(const Factory& factory, std::int64_t lane, const at::Generator& generator) const;
  /// Makes room for lanes like the first: what is frozen is stored once while later lanes' is equal.
  static void begin(Stacks& stacks, const ModuleTensors& first, std::int64_t total);
  /// Puts a new lane's tensors into the stacks, where earlier ones are `entries`; what it does not share with them becomes rows.
  void take_in(const LaneEntry& entry, std::int64_t lane, const std::vector<LaneEntry>& entries, Stacks& stacks) const;
  void check_own(const LaneEntry& entry, std::int64_t lane, const std::vector<LaneEntry>& added, const Stacks& stacks) const;
  /// Takes new stacks and their lanes in use.
  void commit(Stacks stacks, std::vector<LaneEntry> entries);
  /// Moves all lanes to stacks of another kind.
  void replace(const Target& target);
  /// Brings seeds and roster in line with the lanes.
  void list_lanes();
  /// Brings what is trainable in line with the lanes' tensors, and these with a stacked one that was frozen or thawed itself.
  void follow_freezing();
  /// Brings one value that is stored once in line with what was written of it.
  void settle(bool parameter, std::size_t index);
  void unshare(bool parameter, std::size_t index);
  /// Whether it is a parameter, and its index.
  std::pair<bool, std::size_t> place_of(const Stacked& own) const;
  Stacked& stacked(bool parameter, std::size_t index) { return (parameter ? parameters : buffers)[index]; }
};

}  // namespace hfta::lanes
