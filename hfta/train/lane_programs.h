#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hfta/program/program.h"
#include "hfta/train/slots.h"

namespace hfta::train {

/// The recorded programs of all lanes. Lanes of one structure may be fused; equal programs are kept once.
struct LanePrograms {
  std::vector<std::shared_ptr<const program::Program>> programs;  ///< Distinct ones.
  std::vector<std::size_t> program_of_lane, structure_of_lane;
  std::vector<std::string> differences;  ///< Why structure k + 1 is not structure 0.
};

struct RecordOptions;

/// Records the function on each lane, which is left as it was.
/// @throws Unsupported where the function writes its inputs, binds buffers anew, reads values on the host or captured a tensor.
LanePrograms record_lanes(const Slots& slots, const LaneFunction& function, std::span<const Input> inputs, const RecordOptions& options);

}  // namespace hfta::train
