#include "hfta/train/group_programs.h"

#include <ATen/ops/rand.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/base/threads.h"
#include "hfta/program/random.h"
#include "hfta/train/agreement.h"

namespace hfta::train {
namespace {

/// A single lane's program gives results without that axis.
std::vector<at::Tensor> with_lane_axis(const program::Executable& executable, std::int64_t width) {
  std::vector<at::Tensor> results;
  for (std::size_t r = 0; r < executable.results(); ++r) {
    const auto& result = executable.result(r);
    results.push_back(width == 1 && result.defined() ? result.unsqueeze(0) : result);
  }
  return results;
}

GroupKind lift_group(const Slots& slots, const LanePrograms& lanes, std::span<const Input> inputs, std::int64_t first, std::vector<std::size_t> numbers,
                     const GroupOptions& options, lanes::LoweringTable& lowerings) {
  const auto width = static_cast<std::int64_t>(numbers.size());
  lanes::LiftRequest request;
  for (const auto p : numbers) request.lanes.push_back(lanes.programs[p].get());
  request.state = twins(slots.state(first, width));
  request.state_is_shared = slots.shared();
  request.inputs = twins(inputs_of_group(inputs, first, width));
  for (const auto& input : inputs) request.input_is_per_lane.push_back(input.per_lane);
  request.generators = slots.generator_copies(first, width);
  const base::IntraOpThreads threads(options.intra_op_threads);
  auto lifted = lanes::lift(request, lowerings);
  GroupKind kind{std::move(numbers), std::move(lifted.report), {}, {}};
  for (const auto& arena : options.arenas) {
    kind.of_worker.push_back(std::make_unique<program::Executable>(lifted.program, arena));
    kind.results_of_worker.push_back(with_lane_axis(*kind.of_worker.back(), width));
  }
  return kind;
}

/// Two nearly equal candidates of a maximum, or a unit at the edge of a ReLU, fall to either side by rounding, and a gradient by a hundredth:
/// a difference counts where it is still there after the parameters were moved a little.
constexpr int kAttempts = 3;
constexpr double kNudge = 1e-3;

/// Moves every parameter in copies of a group's state by up to a thousandth of itself; another way for each attempt after the first.
void nudge(const Slots& slots, const std::vector<at::Tensor>& state, int attempt) {
  if (attempt == 0) return;
  auto generator = base::seeded_generator(static_cast<std::uint64_t>(attempt));
  std::size_t slot = 0;
  for (const auto* array : slots.arrays()) {
    for (std::size_t k = 0; k < array->parameters().size(); ++k) {
      const auto& tensor = state[slot + k];
      if (tensor.is_floating_point()) tensor.mul_(at::rand(tensor.sizes(), generator, tensor.options().device(at::kCPU)).mul_(kNudge).add_(1).to(tensor.device()));
    }
    slot += array->parameters().size() + array->buffers().size();
  }
}

/// Multiplies each number by one and a few roundings more or less.
void disturb(const at::Tensor& tensor, const at::Generator& generator) {
  if (!tensor.is_floating_point()) return;
  const double rounding = tensor.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  tensor.mul_(at::rand(tensor.sizes(), generator, at::TensorOptions(at::kDouble)).sub_(0.5).mul_(32 * rounding).add_(1).to(tensor.options()));
}

/// What the plain function gives for a lane, and the lane's state after it.
struct Outcome {
  std::vector<at::Tensor> results, state;
};

/// Runs the plain function on a lane, whose state is first `set` to this one. @param seed where given, state and inputs are disturbed by rounding first.
Outcome run_plain(const Slots& slots, const LaneFunction& function, std::span<const Input> inputs, std::int64_t lane, const std::vector<at::Tensor>& state, bool set,
                  std::optional<std::uint64_t> seed) {
  Outcome outcome;
  slots.untouched(lane, [&](const std::vector<at::Tensor>& rows) {
    const auto own = twins(inputs_of_group(inputs, lane, 1));
    for (std::size_t k = 0; set && k < rows.size(); ++k) rows[k].copy_(state[k]);
    if (seed) {
      const auto noise = base::seeded_generator(*seed);
      for (const auto& tensor : rows) disturb(tensor, noise);
      for (const auto& tensor : own) disturb(tensor, noise);
    }
    const auto generator = slots.generator_copies(lane, 1)[0];
    const base::DefaultGeneratorScope on_cpu(generator);
    const auto elsewhere = generator.device().is_cpu() ? nullptr : std::make_unique<program::LaneRandom>(generator);
    for (const auto& result : function(lane, own)) outcome.results.push_back(result.defined() ? result.detach().clone() : at::Tensor());
    for (const auto& tensor : rows) outcome.state.push_back(tensor.clone());
  });
  return outcome;
}

/// How far the plain function's own outcome moves where rounding disturbs it: a deep network's gradient may move by a tenth, since a gate
/// that rounding opens or closes passes a gradient or none.
std::pair<std::vector<double>, std::vector<double>> movement(const std::function<Outcome(std::uint64_t seed)>& run, const Outcome& plain) {
  constexpr double kMargin = 4;
  constexpr std::uint64_t kRuns = 3;
  std::vector<double> results(plain.results.size()), state(plain.state.size());
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const auto moved = run(seed);
    const auto of_results = differences(moved.results, plain.results), of_state = differences(moved.state, plain.state);
    for (std::size_t i = 0; i < results.size(); ++i) results[i] = std::max(results[i], kMargin * of_results[i]);
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = std::max(state[i], kMargin * of_state[i]);
  }
  return {results, state};
}

/// Where a replay and the plain function differ on copies of a lane's state, in words; empty where they agree.
std::string difference_of(const Slots& slots, const LaneFunction& function, std::span<const Input> inputs, const Group& group, std::int64_t index,
                          program::Executable& executable, int attempt) {
  const auto lane = group.first + index;
  const auto row = [&](const at::Tensor& tensor) { return !tensor.defined() || group.width == 1 ? tensor : tensor.select(0, index); };
  const auto state = twins(slots.state(group.first, group.width));
  const auto shared = slots.shared();
  const auto row_of_state = [&](std::size_t k) { return shared[k] ? state[k] : row(state[k]); };
  nudge(slots, state, attempt);
  std::vector<at::Tensor> before;
  for (std::size_t k = 0; k < state.size(); ++k) before.push_back(row_of_state(k).clone());
  const auto plainly = [&](std::optional<std::uint64_t> seed) { return run_plain(slots, function, inputs, lane, before, attempt > 0, seed); };
  const auto plain = plainly(std::nullopt);
  executable.bind({state, inputs_of_group(inputs, group.first, group.width), slots.generator_copies(group.first, group.width)});
  executable.spoil_memory();
  executable.run();
  std::vector<at::Tensor> replayed, replayed_state;
  for (std::size_t r = 0; r < executable.results(); ++r) replayed.push_back(row(executable.result(r)));
  for (std::size_t k = 0; k < state.size(); ++k) replayed_state.push_back(row_of_state(k));
  if (!first_disagreement(replayed, plain.results) && !first_disagreement(replayed_state, plain.state)) return {};
  const auto [of_results, of_state] = movement(plainly, plain);
  const auto names = slots.names();
  for (const auto& [got, expected, allowed, what] : {std::tuple(&replayed, &plain.results, &of_results, "result"), std::tuple(&replayed_state, &plain.state, &of_state, "state")})
    if (const auto difference = first_disagreement(*got, *expected, *allowed))
      return base::message(what, ' ', what == std::string("state") ? names[difference->index] : std::to_string(difference->index), " of lane ", lane, " off by ",
                           difference->largest, " where values reach ", difference->scale);
  return {};
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
  const base::IntraOpThreads threads(intra_op_threads);
  std::string first;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto difference = difference_of(slots, function, inputs, group, index, executable, attempt);
    if (difference.empty()) return;
    if (first.empty()) first = difference;
  }
  throw Unsupported(base::message("train::record: expected the recorded step to agree with the plain one on other data, got ", first,
                                  " (it may read or write values on the host, or depend on something that is no argument)"));
}

}  // namespace hfta::train
