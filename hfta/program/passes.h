#pragma once

#include "hfta/program/program.h"

namespace hfta::program {

/// The marked nodes; a node that rewinds to an earlier one follows it to its new place.
Program keeping(Program program, const std::vector<bool>& keep);

/// Drops nodes that only make views or provide memory: values are views of memory already, so these say nothing more.
Program without_views(Program program);

/// Drops nodes whose results nobody reads and that write nothing that lives on. Random nodes stay: they move their generator.
Program without_dead_nodes(Program program);

/// All passes, in order: what is replayed.
Program simplified(Program program);

/// First and last node that uses each memory, as indices into `nodes`; `{-1, -1}` when none does. Results live until the end.
struct Lifetime {
  std::int32_t first = -1, last = -1;
};
std::vector<Lifetime> lifetimes(const Program& program);

/// Places memories in one block so that memories alive at the same time do not overlap: first fit in order of size.
/// @param bytes of each memory; 0 leaves it out.  @returns an offset per memory, each a multiple of 64, and the block's size.
struct Layout {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
};
Layout lay_out(const std::vector<Lifetime>& lifetimes, const std::vector<std::int64_t>& bytes);

}  // namespace hfta::program
