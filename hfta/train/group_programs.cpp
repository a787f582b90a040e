#include "hfta/train/group_programs.h"

#include <algorithm>
#include <tuple>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/base/threads.h"
#include "hfta/program/random.h"
#include "hfta/train/agreement.h"

namespace hfta::train {
namespace {

GroupKind lift_group(const Slots& slots, const LanePrograms& lanes, std::span<const Input> inputs, std::int64_t first, std::vector<std::size_t> numbers,
                     const GroupOptions& options, lanes::LoweringTable& lowerings) {
  const auto width = static_cast<std::int64_t>(numbers.size());
  lanes::LiftRequest request;
  for (const auto p : numbers) request.lanes.push_back(lanes.programs[p].get());
  request.state = twins(slots.state(first, width));
  request.inputs = twins(inputs_of_group(inputs, first, width));
  for (const auto& input : inputs) request.input_is_per_lane.push_back(input.per_lane);
  request.generators = slots.generator_copies(first, width);
  const base::IntraOpThreads threads(options.intra_op_threads);
  auto lifted = lanes::lift(request, lowerings);
  GroupKind kind{std::move(numbers), std::move(lifted.report), {}};
  for (const auto& arena : options.arenas) kind.of_worker.push_back(std::make_unique<program::Executable>(lifted.program, arena));
  return kind;
}

}  // namespace

GroupPrograms lift_groups(const Slots& slots, const LanePrograms& lanes, std::span<const Input> inputs, const GroupOptions& options,
                          lanes::LoweringTable& lowerings) {
  GroupPrograms built;
  for (std::int64_t first = 0; first < slots.lanes();) {
    std::int64_t end = first + 1;
    while (end < std::min(first + options.width, slots.lanes()) && lanes.structure_of_lane[end] == lanes.structure_of_lane[first]) ++end;
    const auto begin = lanes.program_of_lane.begin();
    std::vector<std::size_t> numbers(begin + first, begin + end);
    std::size_t kind = 0;
    while (kind < built.kinds.size() && built.kinds[kind].numbers != numbers) ++kind;
    if (kind == built.kinds.size()) built.kinds.push_back(lift_group(slots, lanes, inputs, first, std::move(numbers), options, lowerings));
    built.groups.push_back({first, end - first, kind});
    first = end;
  }
  return built;
}

void check_replay(const Slots& slots, const LaneFunction& function, std::span<const Input> inputs, const Group& group, std::int64_t index,
                  program::Executable& executable, int intra_op_threads) {
  const auto lane = group.first + index;
  const base::IntraOpThreads threads(intra_op_threads);
  const auto state = twins(slots.state(group.first, group.width));
  std::vector<at::Tensor> plain, plain_state;
  slots.untouched(lane, [&](const std::vector<at::Tensor>& rows) {
    const auto generator = slots.generator_copies(lane, 1)[0];
    const base::DefaultGeneratorScope on_cpu(generator);
    const auto elsewhere = generator.device().is_cpu() ? nullptr : std::make_unique<program::LaneRandom>(generator);
    const auto own = twins(inputs_of_group(inputs, lane, 1));
    for (const auto& result : function(lane, own)) plain.push_back(result.defined() ? result.detach().clone() : at::Tensor());
    for (const auto& row : rows) plain_state.push_back(row.clone());
  });
  executable.bind({state, inputs_of_group(inputs, group.first, group.width), slots.generator_copies(group.first, group.width)});
  executable.spoil_memory();
  executable.run();
  const auto row = [&](const at::Tensor& tensor) { return !tensor.defined() || group.width == 1 ? tensor : tensor.select(0, index); };
  std::vector<at::Tensor> replayed, replayed_state;
  for (std::size_t r = 0; r < executable.results(); ++r) replayed.push_back(row(executable.result(r)));
  for (const auto& tensor : state) replayed_state.push_back(row(tensor));
  const auto names = slots.names();
  for (const auto& [got, expected, what] : {std::tuple(&replayed, &plain, "result"), std::tuple(&replayed_state, &plain_state, "state")})
    if (const auto difference = first_disagreement(*got, *expected))
      throw Unsupported(base::message("train::record: expected the recorded step to agree with the plain one on other data, got ", what, ' ',
                                      what == std::string("state") ? names[difference->index] : std::to_string(difference->index), " of lane ", lane,
                                      " off by ", difference->largest, " where values reach ", difference->scale,
                                      " (it may read or write values on the host, or depend on something that is no argument)"));
}

}  // namespace hfta::train
