#include "hfta/program/passes.h"

#include <algorithm>
#include <numeric>

#include "hfta/program/random.h"

namespace hfta::program {
namespace {

constexpr std::int64_t kAlignment = 64;

}  // namespace

Program keeping(Program program, const std::vector<bool>& keep) {
  std::vector<std::int32_t> place(program.nodes.size(), -1);
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!keep[i]) continue;
    place[i] = static_cast<std::int32_t>(nodes.size());
    nodes.push_back(std::move(program.nodes[i]));
    if (auto& to = nodes.back().rewinds_to) to = place[*to];
  }
  program.nodes = std::move(nodes);
  return program;
}

Program without_views(Program program) {
  std::vector<bool> keep;
  for (const auto& node : program.nodes) keep.push_back(is_random(node.op) || !(is_view(program, node) || is_allocation(node)));
  return keeping(std::move(program), keep);
}

Program without_dead_nodes(Program program) {
  std::vector<bool> needed(program.memories.size(), false), keep(program.nodes.size(), false);
  for (std::size_t m = 0; m < program.memories.size(); ++m) needed[m] = program.memories[m].origin == Origin::State;
  for (const auto& result : program.results)
    if (result) needed[program.values[*result].memory] = true;
  for (std::size_t i = program.nodes.size(); i-- > 0;) {
    const auto& node = program.nodes[i];
    bool used = is_random(node.op);
    const auto look = [&](ValueId id) { used |= needed[program.values[id].memory]; };
    for (const auto& output : node.outputs) each_value(output, look);
    for (const auto written : written_inputs(node.op, node.inputs)) each_value(node.inputs[written], look);
    if (!used) continue;
    keep[i] = true;
    for (const auto& input : node.inputs) each_value(input, [&](ValueId id) { needed[program.values[id].memory] = true; });
  }
  return keeping(std::move(program), keep);
}

Program simplified(Program program) { return without_dead_nodes(without_views(std::move(program))); }

std::vector<Lifetime> lifetimes(const Program& program) {
  std::vector<Lifetime> lives(program.memories.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(program.nodes.size()); ++i) {
    const auto use = [&](ValueId id) {
      auto& life = lives[program.values[id].memory];
      if (life.first < 0) life.first = i;
      life.last = i;
    };
    for (const auto& input : program.nodes[i].inputs) each_value(input, use);
    for (const auto& output : program.nodes[i].outputs) each_value(output, use);
  }
  const auto end = static_cast<std::int32_t>(program.nodes.size());
  for (const auto& result : program.results)
    if (result) {
      auto& life = lives[program.values[*result].memory];
      if (life.first < 0) life.first = 0;
      life.last = end;
    }
  return lives;
}

Layout lay_out(const std::vector<Lifetime>& lives, const std::vector<std::int64_t>& bytes) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  Layout layout{std::vector<std::int64_t>(bytes.size(), 0), 0};
  std::vector<std::size_t> placed;  // sorted by offset
  for (const auto memory : order) {
    if (bytes[memory] == 0 || lives[memory].first < 0) continue;
    const std::int64_t size = (bytes[memory] + kAlignment - 1) / kAlignment * kAlignment;
    std::int64_t offset = 0;
    for (const auto other : placed) {
      if (lives[other].last < lives[memory].first || lives[other].first > lives[memory].last) continue;
      if (layout.offsets[other] >= offset + size) break;
      offset = std::max(offset, layout.offsets[other] + (bytes[other] + kAlignment - 1) / kAlignment * kAlignment);
    }
    layout.offsets[memory] = offset;
    layout.bytes = std::max(layout.bytes, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), memory,
                                   [&](std::size_t a, std::size_t b) { return layout.offsets[a] < layout.offsets[b]; }),
                  memory);
  }
  return layout;
}

}  // namespace hfta::program
