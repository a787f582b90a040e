#include "hfta/train/lane_programs.h"

#include <ATen/autocast_mode.h>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/lanes/compare.h"
#include "hfta/lanes/merge.h"
#include "hfta/program/passes.h"
#include "hfta/program/recorder.h"
#include "hfta/train/recorded_function.h"

namespace hfta::train {
namespace {

using program::Origin;
using program::Program;

/// Visits the memories that a program's nodes write, with the node's index.
template <typename Visit>
void each_written(const Program& program, const Visit& visit) {
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const auto& node = program.nodes[i];
    for (const auto written : program::written_inputs(node.op, node.inputs))
      program::each_value(node.inputs[written], [&](program::ValueId id) { visit(program.memories[program.values[id].memory], i); });
  }
}

/// An input belongs to the caller, a constant to the program: neither may be written.
void check_writes(const Program& program) {
  each_written(program, [&](const program::Memory& memory, std::size_t node) {
    if (memory.origin == Origin::Input || memory.origin == Origin::Constant)
      throw Unsupported(base::message("train::record: expected a step that leaves its inputs as they are, got one that writes into ",
                                      memory.origin == Origin::Input ? "an input" : "memory from outside", " at node ", node, ": ",
                                      to_string(program, program.nodes[node])));
  });
}

/// The state slots that a program writes.
std::vector<std::int64_t> written_state(const Program& program) {
  std::vector<std::int64_t> slots;
  each_written(program, [&](const program::Memory& memory, std::size_t) {
    if (memory.origin == Origin::State) slots.push_back(memory.slot);
  });
  return slots;
}

program::Recording record_lane(const Slots& slots, const LaneFunction& function, std::int64_t lane, std::span<const Input> inputs) {
  program::Recording recording;
  slots.untouched(lane, [&](const std::vector<at::Tensor>& rows) {
    program::RecordOptions how;
    for (std::size_t k = 0; k < rows.size(); ++k) how.regions.push_back({rows[k], Origin::State, static_cast<std::int64_t>(k)});
    const auto own = twins(inputs_of_group(inputs, lane, 1));
    for (std::size_t k = 0; k < own.size(); ++k) how.regions.push_back({own[k], Origin::Input, static_cast<std::int64_t>(k)});
    // The lane's numbers from the default generator: what the function does to that one (a checkpoint's recompute puts it back) counts.
    const base::DefaultGeneratorScope random(slots.generator_copies(lane, 1)[0]);
    how.generators = {random.generator()};
    at::autocast::clear_cache();
    program::Recorder recorder(std::move(how));
    std::vector<at::Tensor> results;
    recorder.run([&] { results = function(lane, own); });
    for (const auto& result : results) recorder.add_result(result);
    recording = recorder.finish();
  });
  check_writes(recording.program);
  return recording;
}

/// The capture rule: memory from outside is a constant when it is made anew with the same contents each time; else it was captured.
void check_captured(const program::Recording& first, const program::Recording& second, const RecordOptions& options) {
  for (std::size_t k = 0; k < first.captured.size(); ++k) {
    const auto& captured = first.captured[k];
    const bool again = k < second.captured.size() && second.captured[k].memory == captured.memory;
    const bool same_memory = again && second.captured[k].tensor.storage().data() == captured.tensor.storage().data();
    const bool same_contents = again && first.program.memories[captured.memory] == second.program.memories[captured.memory];
    if (same_memory || !same_contents)
      throw Unsupported(base::message("train::record: expected every tensor to be an argument of the step, a parameter or a buffer, got one from outside",
                                      same_contents ? "" : " that changes from call to call", ": ", captured.place, options.name_captured ? options.name_captured(captured.tensor) : ""));
  }
}

/// Adds the next lane's program. @param structures the first program of each structure so far.
void place(LanePrograms& lanes, std::shared_ptr<const Program> program, std::vector<std::size_t>& structures) {
  std::size_t structure = 0;
  std::string why;
  for (; structure < structures.size(); ++structure) {
    const auto difference = lanes::first_difference(*lanes.programs[structures[structure]], *program);
    if (!difference) break;
    if (structure == 0) why = *difference;
  }
  lanes.structure_of_lane.push_back(structure);
  if (structure == structures.size()) {
    structures.push_back(lanes.programs.size());
    if (structure > 0) lanes.differences.push_back(why);
  } else {
    for (std::size_t p = 0; p < lanes.programs.size(); ++p)
      if (!lanes::first_difference(*lanes.programs[p], *program) && lanes::same_numbers(*lanes.programs[p], *program)) {
        lanes.program_of_lane.push_back(p);
        return;
      }
  }
  lanes.program_of_lane.push_back(lanes.programs.size());
  lanes.programs.push_back(std::move(program));
}

Program with_merges(Program program, const RecordOptions& options) {
  program = program::without_dead_nodes(std::move(program));
  return options.merges ? lanes::merged(std::move(program)) : program;
}

}  // namespace

LanePrograms record_lanes(const Slots& slots, const LaneFunction& function, std::span<const Input> inputs, const RecordOptions& options) {
  LanePrograms lanes;
  std::vector<std::size_t> structures;
  for (std::int64_t lane = 0; lane < slots.lanes(); ++lane) {
    auto recording = record_lane(slots, function, lane, inputs);
    if (slots.unshare(written_state(recording.program))) return record_lanes(slots, function, inputs, options);
    if (lane == 0 && !options.freeze_captured && !recording.captured.empty()) check_captured(recording, record_lane(slots, function, lane, inputs), options);
    recording.captured.clear();
    place(lanes, std::make_shared<const Program>(with_merges(std::move(recording.program), options)), structures);
  }
  return lanes;
}

}  // namespace hfta::train
