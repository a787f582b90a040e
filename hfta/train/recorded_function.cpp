#include "hfta/train/recorded_function.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <list>
#include <map>
#include <sstream>
#include <tuple>

#include "hfta/base/error.h"
#include "hfta/base/threads.h"
#include "hfta/train/group_programs.h"
#include "hfta/train/lane_programs.h"
#include "hfta/train/slots.h"

namespace hfta::train {
namespace {

using lanes::ArrayBase;
using AfterEach = RecordedFunction::AfterEach;

std::string signature(std::span<const Input> inputs, const std::vector<ArrayBase*>& arrays) {
  std::ostringstream out;
  for (const auto& input : inputs)
    out << input.per_lane << input.tensor.scalar_type() << input.tensor.device() << input.tensor.sizes() << input.tensor.strides() << ';';
  for (const auto* array : arrays) out << array->is_training() << array->trained() << ';';
  return out.str();
}

/// The programs of one plan.
struct Built : GroupPrograms {
  std::map<std::string, std::string> lowerings;  // chosen while it was built
  std::string not_lifted;                        // why wider groups were given up
  int checks_left = 2;
  std::vector<Input> checked_on;  // inputs of the last check
};

/// Width, workers and their intra-op threads: what a `Built` depends on.
using BuiltFor = std::tuple<std::int64_t, std::int64_t, int>;

/// All that belongs to one shape of the inputs.
struct Recorded {
  std::string signature;
  LanePrograms lanes;
  std::map<BuiltFor, Built> built;
  Built* now = nullptr;  // by the present plan
};

constexpr int kSettled = 16;  // runs by one plan after which the programs of others are dropped

}  // namespace

struct RecordedFunction::State {
  Slots slots;
  LaneFunction function;
  RecordOptions options;
  plan::Plan plan{};
  int runs_by_plan = 0;
  std::vector<std::uint64_t> generations{};
  std::list<Recorded> recordings{};  // most recently used first
  std::int64_t dropped = 0;
  std::unique_ptr<base::Workers> workers{};
  std::vector<std::shared_ptr<program::Arena>> arenas{};
  lanes::LoweringTable lowerings{};

  std::int64_t lanes() const { return slots.lanes(); }

  // ---- groups

  BuiltFor built_for() const { return {std::min(plan.width, lanes()), plan.workers, plan.intra_op_threads}; }

  void build(Recorded& recorded, std::span<const Input> inputs) {
    make_workers();
    const auto [place, added] = recorded.built.try_emplace(built_for());
    recorded.now = &place->second;
    if (!added) return keep_lowerings(*recorded.now);
    auto& built = *recorded.now;
    try {
      lowerings.take_used();
      try {
        lift(recorded, inputs, std::min(plan.width, lanes()));
      } catch (const Unsupported& e) {
        built.not_lifted = e.what();
      } catch (const c10::Error& e) {
        built.not_lifted = e.what_without_backtrace();
      }
      if (!built.not_lifted.empty()) {
        if (plan.width == 1) throw Unsupported(built.not_lifted);
        lift(recorded, inputs, 1);
      }
      built.lowerings = lowerings.take_used();
      keep_lowerings(built);
    } catch (...) {
      recorded.now = nullptr;
      recorded.built.erase(place);
      throw;
    }
  }

  /// A plan tells the lowerings of all input shapes that it has run.
  void keep_lowerings(const Built& built) {
    for (const auto& [key, name] : built.lowerings) plan.lowerings[key] = name;
  }

  void make_workers() {
    while (static_cast<std::int64_t>(arenas.size()) < plan.workers) arenas.push_back(std::make_shared<program::Arena>(slots.arrays()[0]->device()));
    if (workers && workers->count() == plan.workers && workers->intra_op_threads() == plan.intra_op_threads) return;
    workers = std::make_unique<base::Workers>(plan.workers, plan.intra_op_threads);
  }

  /// Drops what other plans left behind, once this one is here to stay.
  void settle() {
    std::int64_t bytes = 0;
    for (auto& recorded : recordings) {
      std::erase_if(recorded.built, [&](const auto& entry) { return entry.first != built_for(); });
      if (!recorded.built.contains(built_for())) recorded.now = nullptr;
      for (const auto& [key, built] : recorded.built)
        for (const auto& kind : built.kinds) bytes = std::max(bytes, kind.of_worker[0]->arena_bytes());
    }
    arenas.resize(plan.workers);
    for (auto& arena : arenas) arena->shrink(bytes);
  }

  void lift(Recorded& recorded, std::span<const Input> inputs, std::int64_t width) {
    const GroupOptions how{width, plan.intra_op_threads, std::span(arenas).first(static_cast<std::size_t>(plan.workers))};
    static_cast<GroupPrograms&>(*recorded.now) = lift_groups(slots, recorded.lanes, inputs, how, lowerings);
  }

  // ---- checks

  /// Compares the replay with the plain function on copies of the state of the first and the last lane.
  void check(const Recorded& recorded, std::span<const Input> inputs) {
    auto& built = *recorded.now;
    const auto check_lane = [&](const Group& group, std::int64_t index) {
      check_replay(slots, function, inputs, group, index, *built.kinds[group.kind].of_worker[0], plan.intra_op_threads);
    };
    check_lane(built.groups.front(), 0);
    if (lanes() > 1) check_lane(built.groups.back(), built.groups.back().width - 1);
    --built.checks_left;
    built.checked_on.clear();
    for (const auto& input : inputs) built.checked_on.push_back({input.tensor.clone(), input.per_lane});
  }

  static bool wants_check(const Built& built, std::span<const Input> inputs) {
    if (built.checks_left == 0) return false;
    for (std::size_t k = 0; k < built.checked_on.size(); ++k)
      if (!built.checked_on[k].tensor.equal(inputs[k].tensor)) return true;
    return built.checked_on.empty();
  }

  // ---- running

  /// The recording of these inputs, most recently used first.
  Recorded& recording_for(std::span<const Input> inputs, std::string wanted) {
    forget_old();
    if (options.context) wanted += options.context();
    auto found = std::find_if(recordings.begin(), recordings.end(), [&](const Recorded& r) { return r.signature == wanted; });
    if (found != recordings.end()) {
      recordings.splice(recordings.begin(), recordings, found);
    } else {
      auto recorded = record_lanes(slots, function, inputs, options);
      forget_old();  // a step that writes what lanes share gives each lane its own
      recordings.push_front({std::move(wanted), std::move(recorded), {}});
      if (recordings.size() > options.limit) recordings.pop_back(), ++dropped;
    }
    return recordings.front();
  }

  /// Recordings of lanes that have moved since, or that share something else now.
  void forget_old() {
    std::vector<std::uint64_t> now;
    for (const auto* array : slots.arrays()) now.push_back(array->generation()), now.push_back(array->sharing());
    if (now == generations) return;
    check_arrays(slots.arrays(), nullptr, "train::record");  // lanes may have been kept in one of them only
    recordings.clear(), generations = now;
  }

  Recorded& recorded_for(std::span<const Input> inputs, std::string wanted) {
    auto& recorded = recording_for(inputs, std::move(wanted));
    if (!recorded.now) build(recorded, inputs);
    if (++runs_by_plan == kSettled) settle();
    return recorded;
  }

  void run_group(const Recorded& recorded, std::span<const Batch> batches, const Group& group, std::int64_t worker, const AfterEach& after) {
    const auto& kind = recorded.now->kinds[group.kind];
    auto& executable = *kind.of_worker[worker];
    program::Binding binding{slots.state(group.first, group.width), {}, slots.generators(group.first, group.width)};
    for (std::size_t batch = 0; batch < batches.size(); ++batch) {
      binding.inputs = inputs_of_group(batches[batch], group.first, group.width);
      executable.bind(binding);
      executable.run();
      after(batch, group.first, group.width, kind.results_of_worker[worker]);
    }
  }

  void replay(const Recorded& recorded, std::span<const Batch> batches, const AfterEach& after) {
    const auto count = static_cast<std::int64_t>(recorded.now->groups.size());
    workers->each([&](std::int64_t worker) {
      const at::NoGradGuard no_grad;
      for (std::int64_t g = worker; g < count; g += workers->count()) run_group(recorded, batches, recorded.now->groups[g], worker, after);
    });
  }
};

RecordedFunction::RecordedFunction(std::vector<ArrayBase*> arrays, LaneFunction function, plan::Plan plan, RecordOptions options) {
  HFTA_CHECK(!arrays.empty(), "train::record: expected at least one array, got none");
  HFTA_CHECK(options.limit >= 1, "train::record: expected to keep at least 1 recording (limit), got ", options.limit);
  for (const auto* array : arrays)
    HFTA_CHECK(array->lanes() == arrays[0]->lanes(), "train::record: expected arrays of ", arrays[0]->lanes(), " lanes, got one of ", array->lanes());
  state_ = std::unique_ptr<State>(new State{Slots(std::move(arrays)), std::move(function), std::move(options)});
  set_plan(std::move(plan));
}

RecordedFunction::~RecordedFunction() = default;

void RecordedFunction::run(std::span<const Input> inputs, const After& after) {
  const Batch batch(inputs.begin(), inputs.end());
  run_together({&batch, 1}, [&](std::size_t, std::int64_t first, std::int64_t width, std::span<const at::Tensor> results) { after(first, width, results); });
}

std::size_t RecordedFunction::run_together(std::span<const Batch> given, const AfterEach& after, const Before& before) {
  auto& state = *state_;
  for (auto* array : state.slots.arrays()) array->settle();
  std::vector<Batch> batches{bindable(given[0])};
  const auto shapes = signature(batches[0], state.slots.arrays());
  const auto& recorded = state.recorded_for(batches[0], shapes);
  if (State::wants_check(*recorded.now, batches[0])) {
    state.check(recorded, batches[0]);
  } else {
    while (batches.size() < given.size()) {
      auto next = bindable(given[batches.size()]);
      if (signature(next, state.slots.arrays()) != shapes) break;
      batches.push_back(std::move(next));
    }
  }
  if (before) before(batches.size());
  state.replay(recorded, batches, after);
  return batches.size();
}

std::pair<program::Work, std::string> RecordedFunction::work(std::span<const Input> given) {
  auto& state = *state_;
  for (auto* array : state.slots.arrays()) array->settle();
  const auto inputs = bindable(given);
  const auto& recording = state.recording_for(inputs, signature(inputs, state.slots.arrays()));
  std::ostringstream structure;
  structure << recording.signature;
  std::size_t known = 0;
  for (std::size_t lane = 0; lane < recording.lanes.structure_of_lane.size(); ++lane) {
    structure << ' ' << recording.lanes.structure_of_lane[lane];
    if (lane > 0 && recording.lanes.structure_of_lane[lane] <= known) continue;
    known = recording.lanes.structure_of_lane[lane];
    structure << '=' << std::hex << program::fingerprint(*recording.lanes.programs[recording.lanes.program_of_lane[lane]]) << std::dec;
  }
  return {program::work_of(*recording.lanes.programs[0]), structure.str()};
}

const plan::Plan& RecordedFunction::plan() const { return state_->plan; }

void RecordedFunction::set_plan(plan::Plan plan) {
  HFTA_CHECK(plan.width >= 1, "train::record: expected a group width of at least 1, got ", plan.width);
  auto& state = *state_;
  if (plan.measures_lowerings != state.plan.measures_lowerings) {
    state.lowerings = lanes::LoweringTable({}, plan.measures_lowerings);
    for (auto& recorded : state.recordings) recorded.built.clear();
  }
  if (state.lowerings.add(plan.lowerings))
    for (auto& recorded : state.recordings) recorded.built.clear();
  for (auto& recorded : state.recordings) recorded.now = nullptr;
  state.plan = std::move(plan);
  state.runs_by_plan = 0;
}

std::string RecordedFunction::report() const {
  std::ostringstream out;
  const auto& state = *state_;
  out << state.recordings.size() << " recordings kept (at most " << state.options.limit << "), " << state.dropped << " dropped\n";
  for (const auto& recorded : state.recordings) {
    for (const auto& difference : recorded.lanes.differences) out << "lanes of another structure do not fuse: " << difference << '\n';
    if (!recorded.now) continue;
    const auto& built = *recorded.now;
    out << built.groups.size() << " groups of up to " << state.plan.width << " lanes on " << state.plan.workers << " workers, " << built.kinds.size() << " programs, "
        << built.kinds[0].of_worker[0]->program().nodes.size() << " nodes\n";
    if (!built.not_lifted.empty()) out << "not fused, one lane at a time: " << built.not_lifted << '\n';
    for (const auto& [name, count] : built.kinds[0].report.looped) out << "one node per lane: " << name << " (" << count << ")\n";
    for (const auto& [name, count] : built.kinds[0].report.ruled) out << "lowered: " << name << " (" << count << ")\n";
  }
  return out.str();
}

std::string RecordedFunction::print(std::int64_t repeats) {
  std::ostringstream out;
  auto& state = *state_;
  for (const auto& recorded : state.recordings) {
    if (!recorded.now) continue;
    for (std::size_t k = 0; k < recorded.now->kinds.size(); ++k) {
      auto& executable = *recorded.now->kinds[k].of_worker[0];
      const auto& program = executable.program();
      if (repeats == 0) {
        out << to_string(program);
        continue;
      }
      const auto group = *std::find_if(recorded.now->groups.begin(), recorded.now->groups.end(), [&](const Group& g) { return g.kind == k; });
      const auto copies = twins(state.slots.state(group.first, group.width));
      const base::IntraOpThreads threads(state.plan.intra_op_threads);
      executable.bind({copies, inputs_of_group(recorded.now->checked_on, group.first, group.width), state.slots.generator_copies(group.first, group.width)});
      const auto milliseconds = executable.profile(repeats);
      for (std::size_t i = 0; i < program.nodes.size(); ++i) out << milliseconds[i] << " ms  " << to_string(program, program.nodes[i]) << '\n';
    }
  }
  return out.str();
}

std::int64_t RecordedFunction::activation_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& arena : state_->arenas) bytes = std::max(bytes, arena->bytes());
  return bytes;
}

}  // namespace hfta::train
