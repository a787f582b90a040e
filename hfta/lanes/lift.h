#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hfta/lanes/lowering_table.h"
#include "hfta/program/program.h"

namespace hfta::lanes {

/// What a group's lanes are lifted from: their programs, one structure, and tensors like those that the program will be bound to. The lift runs
/// every node once on these tensors, so they are copies: their contents and the generators change.
struct LiftRequest {
  std::vector<const program::Program*> lanes;
  std::vector<at::Tensor> state;         ///< Per slot `[lanes, ...]`; of a single lane, or shared by all, without the lane axis.
  std::vector<bool> state_is_shared{};   ///< Per slot; empty: none is. What is shared is never written.
  std::vector<at::Tensor> inputs;        ///< As the step gets them; per-lane ones `[lanes, ...]` (a single lane's without the axis).
  std::vector<bool> input_is_per_lane;
  std::vector<at::Generator> generators;  ///< One per lane.
};

/// How the operators of a lifted program are computed.
struct LiftReport {
  std::int64_t shared = 0;                          ///< Nodes computed once for all lanes.
  std::int64_t batched = 0;                         ///< By LibTorch's batching rules.
  std::map<std::string, std::int64_t> ruled;        ///< By a rule of ours: "aten::mm wide" -> nodes.
  std::map<std::string, std::int64_t> looped;       ///< One node per lane, since nothing better is there: operator -> nodes.
};

struct Lifted {
  program::Program program;  ///< Simplified; results are `[lanes, ...]`, dense (of a single lane: as recorded).
  LiftReport report;
};

/// Turns the lanes' programs into the program of their group: horizontal fusion.
///
/// A group of one lane keeps the recorded operators, but for kernels of ours that the table chooses. In a wider group each node becomes, in
/// this order: one node as it is where no input differs between lanes; a rule of `ops/`; LibTorch's batching rule; one node per lane.
/// @throws Unsupported when a node cannot be lifted (an alias of a value whose layout changed is written later), naming it.
Lifted lift(const LiftRequest& request, LoweringTable& lowerings);

}  // namespace hfta::lanes
