#pragma once

#include <cstdint>

#include "hfta/program/program.h"

namespace hfta::program {

/// What a run of a program asks of the machine.
struct Work {
  std::int64_t nodes = 0;
  double flops = 0;        ///< Of products and convolutions: two for each multiplication and addition.
  double moved_bytes = 0;  ///< Read and written by all nodes, each value as often as a node has it.
  double made_bytes = 0;   ///< Of the memories that nodes make.
};
Work work_of(const Program& program);

/// Equal for programs of the same operators on values of the same shapes, types and places; floating numbers among the arguments
/// (a dropout's probability) do not count. The same on every run.
std::uint64_t fingerprint(const Program& program);

}  // namespace hfta::program
