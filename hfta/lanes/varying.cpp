#include "hfta/lanes/varying.h"

#include "hfta/program/random.h"

namespace hfta::lanes {
namespace {

using program::Node;
using program::Origin;
using program::Program;

bool numbers_differ(const std::vector<const Program*>& lanes, std::size_t node) {
  for (std::size_t i = 0; i < lanes[0]->nodes[node].inputs.size(); ++i) {
    const auto* first = std::get_if<c10::IValue>(&lanes[0]->nodes[node].inputs[i]);
    if (!first || !(first->isDouble() || first->isInt())) continue;
    for (const auto* lane : lanes)
      if (std::get<c10::IValue>(lane->nodes[node].inputs[i]) != *first) return true;
  }
  return false;
}

bool starts_varying(const std::vector<const Program*>& lanes, const std::vector<bool>& input_is_per_lane, const std::vector<bool>& state_is_shared, std::size_t m) {
  const auto& memory = lanes[0]->memories[m];
  if (memory.origin == Origin::State) return state_is_shared.empty() || !state_is_shared.at(memory.slot);
  if (memory.origin == Origin::Input) return input_is_per_lane.at(memory.slot);
  if (memory.origin == Origin::Constant)
    for (const auto* lane : lanes)
      if (!(lane->memories[m] == memory)) return true;
  return false;
}

}  // namespace

std::vector<bool> varying_memories(const std::vector<const Program*>& lanes, const std::vector<bool>& input_is_per_lane,
                                    const std::vector<bool>& state_is_shared) {
  const Program& program = *lanes[0];
  std::vector<bool> varies(program.memories.size());
  for (std::size_t m = 0; m < varies.size(); ++m) varies[m] = starts_varying(lanes, input_is_per_lane, state_is_shared, m);
  std::vector<bool> own(program.nodes.size());
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = program::is_random(program.nodes[i].op) || numbers_differ(lanes, i);
  for (bool changed = true; changed;) {
    changed = false;
    const auto mark = [&](program::ValueId id) {
      const auto m = program.values[id].memory;
      changed |= !varies[m];
      varies[m] = true;
    };
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const auto& node = program.nodes[i];
      bool varying = own[i];
      // An allocation takes only the shape of its arguments.
      if (!program::is_allocation(node))
        for (const auto& input : node.inputs) program::each_value(input, [&](program::ValueId id) { varying |= varies[program.values[id].memory]; });
      if (!varying) continue;
      for (const auto& output : node.outputs) program::each_value(output, mark);
      for (const auto written : program::written_inputs(node.op, node.inputs)) program::each_value(node.inputs[written], mark);
    }
  }
  return varies;
}

}  // namespace hfta::lanes
