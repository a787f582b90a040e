#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hfta/lanes/lift.h"
#include "hfta/program/executable.h"
#include "hfta/train/lane_programs.h"

namespace hfta::train {

/// Lanes `[first, first + width)` of one structure; groups of the same kind run the same program.
struct Group {
  std::int64_t first, width;
  std::size_t kind;
};

/// The program of one kind of group: how it was lifted, and one executable per worker.
struct GroupKind {
  std::vector<std::size_t> numbers;  ///< Per lane: which of the distinct lane programs.
  lanes::LiftReport report;
  std::vector<std::unique_ptr<program::Executable>> of_worker;
  std::vector<std::vector<at::Tensor>> results_of_worker;  ///< `[width, ...]`, undefined where there is none; filled by each run.
};

/// The programs of all groups.
struct GroupPrograms {
  std::vector<Group> groups;
  std::vector<GroupKind> kinds;
};

/// Where programs are lifted and run.
struct GroupOptions {
  std::int64_t width;
  int intra_op_threads;
  std::span<const std::shared_ptr<program::Arena>> arenas;  ///< One per worker.
};

/// Fuses lanes to groups of up to `width` neighbours of one structure.
/// @throws Unsupported where a program cannot be lifted.
GroupPrograms lift_groups(const Slots& slots, const LanePrograms& lanes, std::span<const Input> inputs, const GroupOptions& options,
                          lanes::LoweringTable& lowerings);

/// Compares a group's replay with the plain function for the group's lane `index`, on copies of the state.
/// @throws Unsupported naming the result or state that does not agree.
void check_replay(const Slots& slots, const LaneFunction& function, std::span<const Input> inputs, const Group& group, std::int64_t index,
                  program::Executable& executable, int intra_op_threads);

}  // namespace hfta::train
