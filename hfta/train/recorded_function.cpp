#include "hfta/train/recorded_function.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <list>
#include <map>
#include <sstream>
#include <tuple>

#include "hfta/base/error.h"
#include "hfta/base/threads.h"
#include "hfta/lanes/compare.h"
#include "hfta/lanes/lift.h"
#include "hfta/program/executable.h"
#include "hfta/program/passes.h"
#include "hfta/program/random.h"
#include "hfta/program/recorder.h"
#include "hfta/train/agreement.h"

namespace hfta::train {
namespace {

using lanes::ArrayBase;
using program::Origin;
using program::Program;

/// A copy with the same strides: what is bound to one may be bound to the other.
at::Tensor twin(const at::Tensor& tensor) {
  auto copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

/// An input whose memory a program can be bound to: dense, and each lane's row dense.
Input bindable(const Input& input) {
  const auto tensor = input.tensor.detach();
  if (!input.per_lane) return {tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous(), false};
  const bool dense_rows = tensor.size(0) > 0 && tensor.select(0, 0).is_non_overlapping_and_dense() &&
                          (tensor.size(0) == 1 || tensor.stride(0) == tensor.select(0, 0).numel());
  return {dense_rows ? tensor : tensor.contiguous(), true};
}

std::string signature(std::span<const Input> inputs, const std::vector<ArrayBase*>& arrays) {
  std::ostringstream out;
  for (const auto& input : inputs)
    out << input.per_lane << input.tensor.scalar_type() << input.tensor.device() << input.tensor.sizes() << input.tensor.strides() << ';';
  for (const auto* array : arrays) out << array->is_training();
  return out.str();
}

/// Lanes `[first, first + width)` of one structure; groups of the same kind run the same program.
struct Group {
  std::int64_t first, width;
  std::size_t kind;
};

/// The programs of one kind of group: how it was lifted, and one executable per worker.
struct Kind {
  std::vector<std::size_t> numbers;  // per lane: which of the distinct lane programs
  lanes::LiftReport report;
  std::vector<std::unique_ptr<program::Executable>> of_worker;
};

/// The programs of one plan.
struct Built {
  std::vector<Group> groups;
  std::vector<Kind> kinds;
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
  std::vector<std::shared_ptr<const Program>> programs;  // distinct ones
  std::vector<std::size_t> program_of_lane, structure_of_lane;
  std::vector<std::string> differences;  // why structure k + 1 is not structure 0
  std::map<BuiltFor, Built> built;
  Built* now = nullptr;  // by the present plan
};

constexpr int kSettled = 16;  // runs by one plan after which the programs of others are dropped

}  // namespace

struct RecordedFunction::State {
  std::vector<ArrayBase*> arrays;
  LaneFunction function;
  plan::Plan plan;
  RecordOptions options;
  int runs_by_plan = 0;
  std::vector<std::uint64_t> generations;
  std::list<Recorded> recordings;  // most recently used first
  std::int64_t dropped = 0;
  std::unique_ptr<base::Workers> workers;
  std::vector<std::shared_ptr<program::Arena>> arenas;
  lanes::LoweringTable lowerings;

  std::int64_t lanes() const { return arrays[0]->lanes(); }

  // ---- slots

  std::vector<at::Tensor> stacked(std::int64_t first, std::int64_t width) const {
    std::vector<at::Tensor> rows;
    for (const auto* array : arrays)
      for (const auto* stacks : {&array->parameters(), &array->buffers()})
        for (const auto& stack : *stacks) {
          const auto tensor = stack.tensor.detach();
          rows.push_back(width == 1 ? tensor.select(0, first) : tensor.narrow(0, first, width));
        }
    return rows;
  }

  static std::vector<at::Tensor> group_inputs(std::span<const Input> inputs, std::int64_t first, std::int64_t width) {
    std::vector<at::Tensor> own;
    for (const auto& input : inputs)
      own.push_back(!input.per_lane ? input.tensor : width == 1 ? input.tensor.select(0, first) : input.tensor.narrow(0, first, width));
    return own;
  }

  std::vector<at::Generator> generators(std::int64_t first, std::int64_t width, bool copies) const {
    std::vector<at::Generator> own;
    for (std::int64_t lane = first; lane < first + width; ++lane) own.push_back(copies ? arrays[0]->generator(lane).clone() : arrays[0]->generator(lane));
    return own;
  }

  // ---- one lane

  /// Runs `body` on a lane and puts the lane's state back as it was.
  template <typename Body>
  void untouched(std::int64_t lane, Body&& body) {
    const auto rows = stacked(lane, 1);
    std::vector<at::Tensor> before;
    for (const auto& row : rows) before.push_back(row.clone());
    struct Restore {
      const std::vector<at::Tensor>&rows, &before;
      ~Restore() {
        const at::NoGradGuard no_grad;
        for (std::size_t k = 0; k < rows.size(); ++k) rows[k].copy_(before[k]);
      }
    } restore{rows, before};
    struct Rebound {
      const std::vector<ArrayBase*>& arrays;
      std::int64_t lane;
      ~Rebound() { names(); }
      std::string names() const {
        std::string text;
        for (auto* array : arrays)
          for (const auto& name : array->restore_rows(lane)) text += (text.empty() ? "\"" : ", \"") + name + '"';
        return text;
      }
    } rebound{arrays, lane};
    body(rows);
    const auto names = rebound.names();
    if (!names.empty())
      throw Unsupported(base::message("train::record: expected a step that writes its buffers in place, got ", names, " bound to other memory in lane ", lane));
  }

  program::Recording record_lane(std::int64_t lane, std::span<const Input> inputs) {
    program::Recording recording;
    untouched(lane, [&](const std::vector<at::Tensor>& rows) {
      program::RecordOptions how;
      for (std::size_t k = 0; k < rows.size(); ++k) how.regions.push_back({rows[k], Origin::State, static_cast<std::int64_t>(k)});
      std::vector<at::Tensor> own;
      for (const auto& tensor : group_inputs(inputs, lane, 1)) own.push_back(twin(tensor));
      for (std::size_t k = 0; k < own.size(); ++k) how.regions.push_back({own[k], Origin::Input, static_cast<std::int64_t>(k)});
      how.generators = generators(lane, 1, true);
      at::autocast::clear_cache();
      program::Recorder recorder(std::move(how));
      std::vector<at::Tensor> results;
      recorder.run([&] { results = function(lane, own); });
      for (const auto& result : results) recorder.add_result(result);
      recording = recorder.finish();
    });
    check_writes(recording);
    return recording;
  }

  /// An input belongs to the caller, a constant to the program: neither may be written.
  static void check_writes(const program::Recording& recording) {
    const auto& program = recording.program;
    for (std::size_t i = 0; i < program.nodes.size(); ++i)
      for (const auto written : program::written_inputs(program.nodes[i].op, program.nodes[i].inputs))
        program::each_value(program.nodes[i].inputs[written], [&](program::ValueId id) {
          const auto origin = program.memories[program.values[id].memory].origin;
          if (origin == Origin::Input || origin == Origin::Constant)
            throw Unsupported(base::message("train::record: expected a step that leaves its inputs as they are, got one that writes into ",
                                            origin == Origin::Input ? "an input" : "memory from outside", " at node ", i, ": ",
                                            to_string(program, program.nodes[i])));
        });
  }

  /// The capture rule: memory from outside is a constant when it is made anew with the same contents each time; else it was captured.
  void check_captured(const program::Recording& first, std::int64_t lane, std::span<const Input> inputs) {
    if (first.captured.empty() || options.freeze_captured) return;
    const auto second = record_lane(lane, inputs);
    for (std::size_t k = 0; k < first.captured.size(); ++k) {
      const auto& captured = first.captured[k];
      const bool again = k < second.captured.size() && second.captured[k].memory == captured.memory;
      const bool same_memory = again && second.captured[k].tensor.storage().data() == captured.tensor.storage().data();
      const bool same_contents = again && first.program.memories[captured.memory] == second.program.memories[captured.memory];
      if (same_memory || !same_contents)
        throw Unsupported(base::message("train::record: expected every tensor to be an argument of the step, a parameter or a buffer, got one from outside",
                                        same_contents ? "" : " that changes from call to call", ": ", captured.place,
                                        options.name_captured ? options.name_captured(captured.tensor) : ""));
    }
  }

  // ---- all lanes

  Recorded record(std::span<const Input> inputs, std::string signature) {
    Recorded recorded;
    recorded.signature = std::move(signature);
    std::vector<std::size_t> structures;  // first program of each
    for (std::int64_t lane = 0; lane < lanes(); ++lane) {
      auto recording = record_lane(lane, inputs);
      if (lane == 0) check_captured(recording, lane, inputs);
      recording.captured.clear();
      place(recorded, std::make_shared<const Program>(program::without_dead_nodes(std::move(recording.program))), structures);
    }
    return recorded;
  }

  static void place(Recorded& recorded, std::shared_ptr<const Program> program, std::vector<std::size_t>& structures) {
    std::size_t structure = 0;
    std::string why;
    for (; structure < structures.size(); ++structure) {
      const auto difference = lanes::first_difference(*recorded.programs[structures[structure]], *program);
      if (!difference) break;
      if (structure == 0) why = *difference;
    }
    if (structure == structures.size()) {
      structures.push_back(recorded.programs.size());
      if (structure > 0) recorded.differences.push_back(why);
    } else {
      for (std::size_t p = 0; p < recorded.programs.size(); ++p)
        if (!lanes::first_difference(*recorded.programs[p], *program) && lanes::same_numbers(*recorded.programs[p], *program)) {
          recorded.program_of_lane.push_back(p);
          recorded.structure_of_lane.push_back(structure);
          return;
        }
    }
    recorded.program_of_lane.push_back(recorded.programs.size());
    recorded.structure_of_lane.push_back(structure);
    recorded.programs.push_back(std::move(program));
  }

  // ---- groups

  BuiltFor built_for() const { return {std::min(plan.width, lanes()), plan.workers, plan.intra_op_threads}; }

  void build(Recorded& recorded, std::span<const Input> inputs) {
    make_workers();
    const auto [place, added] = recorded.built.try_emplace(built_for());
    recorded.now = &place->second;
    if (!added) {
      plan.lowerings = recorded.now->lowerings;
      return;
    }
    auto& built = *recorded.now;
    try {
      lowerings.take_used();
      try {
        build_width(recorded, built, inputs, std::min(plan.width, lanes()));
      } catch (const Unsupported& e) {
        built.not_lifted = e.what();
      } catch (const c10::Error& e) {
        built.not_lifted = e.what_without_backtrace();
      }
      if (!built.not_lifted.empty()) {
        if (plan.width == 1) throw Unsupported(built.not_lifted);
        build_width(recorded, built, inputs, 1);
      }
      built.lowerings = plan.lowerings = lowerings.take_used();
    } catch (...) {
      recorded.now = nullptr;
      recorded.built.erase(place);
      throw;
    }
  }

  void make_workers() {
    while (static_cast<std::int64_t>(arenas.size()) < plan.workers) arenas.push_back(std::make_shared<program::Arena>(arrays[0]->device()));
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

  void build_width(const Recorded& recorded, Built& built, std::span<const Input> inputs, std::int64_t width) {
    built.groups.clear();
    built.kinds.clear();
    for (std::int64_t first = 0; first < lanes();) {
      std::int64_t end = first + 1;
      while (end < std::min(first + width, lanes()) && recorded.structure_of_lane[end] == recorded.structure_of_lane[first]) ++end;
      const auto begin = recorded.program_of_lane.begin();
      std::vector<std::size_t> numbers(begin + first, begin + end);
      std::size_t kind = 0;
      while (kind < built.kinds.size() && built.kinds[kind].numbers != numbers) ++kind;
      if (kind == built.kinds.size()) built.kinds.push_back(lift_group(recorded, inputs, first, std::move(numbers)));
      built.groups.push_back({first, end - first, kind});
      first = end;
    }
  }

  Kind lift_group(const Recorded& recorded, std::span<const Input> inputs, std::int64_t first, std::vector<std::size_t> numbers) {
    const auto width = static_cast<std::int64_t>(numbers.size());
    lanes::LiftRequest request;
    for (const auto p : numbers) request.lanes.push_back(recorded.programs[p].get());
    for (const auto& tensor : stacked(first, width)) request.state.push_back(twin(tensor));
    for (const auto& tensor : group_inputs(inputs, first, width)) request.inputs.push_back(twin(tensor));
    for (const auto& input : inputs) request.input_is_per_lane.push_back(input.per_lane);
    request.generators = generators(first, width, true);
    const base::IntraOpThreads threads(plan.intra_op_threads);
    auto lifted = lanes::lift(request, lowerings);
    Kind kind{std::move(numbers), std::move(lifted.report), {}};
    for (std::int64_t worker = 0; worker < plan.workers; ++worker)
      kind.of_worker.push_back(std::make_unique<program::Executable>(lifted.program, arenas[worker]));
    return kind;
  }

  // ---- checks

  /// Compares the replay with the plain function on copies of the state of the first and the last lane.
  void check(Recorded& recorded, std::span<const Input> inputs) {
    const auto& groups = recorded.now->groups;
    check_lane(recorded, inputs, groups.front(), 0);
    if (lanes() > 1) check_lane(recorded, inputs, groups.back(), groups.back().width - 1);
    --recorded.now->checks_left;
    recorded.now->checked_on.clear();
    for (const auto& input : inputs) recorded.now->checked_on.push_back({input.tensor.clone(), input.per_lane});
  }

  static bool wants_check(const Built& built, std::span<const Input> inputs) {
    if (built.checks_left == 0) return false;
    for (std::size_t k = 0; k < built.checked_on.size(); ++k)
      if (!built.checked_on[k].tensor.equal(inputs[k].tensor)) return true;
    return built.checked_on.empty();
  }

  void check_lane(const Recorded& recorded, std::span<const Input> inputs, const Group& group, std::int64_t index) {
    const auto lane = group.first + index;
    std::vector<at::Tensor> state;
    for (const auto& tensor : stacked(group.first, group.width)) state.push_back(twin(tensor));
    std::vector<at::Tensor> plain, plain_state;
    untouched(lane, [&](const std::vector<at::Tensor>& rows) {
      const base::IntraOpThreads threads(plan.intra_op_threads);
      const program::LaneRandom random(arrays[0]->generator(lane).clone());
      std::vector<at::Tensor> own;
      for (const auto& tensor : group_inputs(inputs, lane, 1)) own.push_back(twin(tensor));
      for (const auto& result : function(lane, own)) plain.push_back(result.defined() ? result.detach().clone() : at::Tensor());
      for (const auto& row : rows) plain_state.push_back(row.clone());
    });
    auto& executable = *recorded.now->kinds[group.kind].of_worker[0];
    const base::IntraOpThreads threads(plan.intra_op_threads);
    executable.bind({state, group_inputs(inputs, group.first, group.width), generators(group.first, group.width, true)});
    executable.run();
    const auto row = [&](const at::Tensor& tensor) { return !tensor.defined() || group.width == 1 ? tensor : tensor.select(0, index); };
    std::vector<at::Tensor> replayed, replayed_state;
    for (std::size_t r = 0; r < executable.results(); ++r) replayed.push_back(row(executable.result(r)));
    for (const auto& tensor : state) replayed_state.push_back(row(tensor));
    const auto names = state_names();
    for (const auto& [got, expected, what] : {std::tuple(&replayed, &plain, "result"), std::tuple(&replayed_state, &plain_state, "state")})
      if (const auto difference = first_disagreement(*got, *expected))
        throw Unsupported(base::message("train::record: expected the recorded step to agree with the plain one on other data, got ", what, ' ',
                                        what == std::string("state") ? names[difference->index] : std::to_string(difference->index), " of lane ", lane,
                                        " off by ", difference->largest, " where values reach ", difference->scale,
                                        " (it may read or write values on the host, or depend on something that is no argument)"));
  }

  std::vector<std::string> state_names() const {
    std::vector<std::string> names;
    for (const auto* array : arrays)
      for (const auto* stacks : {&array->parameters(), &array->buffers()})
        for (const auto& stack : *stacks) names.push_back('"' + stack.name + '"');
    return names;
  }

  // ---- running

  Recorded& recorded_for(std::span<const Input> inputs) {
    std::vector<std::uint64_t> now;
    for (const auto* array : arrays) now.push_back(array->generation());
    if (now != generations) recordings.clear(), generations = now;
    auto wanted = signature(inputs, arrays);
    if (options.context) wanted += options.context();
    auto found = std::find_if(recordings.begin(), recordings.end(), [&](const Recorded& r) { return r.signature == wanted; });
    if (found != recordings.end()) {
      recordings.splice(recordings.begin(), recordings, found);
    } else {
      recordings.push_front(record(inputs, std::move(wanted)));
      if (recordings.size() > options.limit) recordings.pop_back(), ++dropped;
    }
    auto& recorded = recordings.front();
    if (!recorded.now) build(recorded, inputs);
    if (++runs_by_plan == kSettled) settle();
    return recorded;
  }

  void run_group(const Recorded& recorded, std::span<const Input> inputs, const Group& group, std::int64_t worker, const After& after) {
    auto& executable = *recorded.now->kinds[group.kind].of_worker[worker];
    executable.bind({stacked(group.first, group.width), group_inputs(inputs, group.first, group.width), generators(group.first, group.width, false)});
    executable.run();
    std::vector<at::Tensor> results;
    for (std::size_t r = 0; r < executable.results(); ++r) {
      const auto& result = executable.result(r);
      results.push_back(group.width == 1 && result.defined() ? result.unsqueeze(0) : result);
    }
    after(group.first, group.width, results);
  }
};

RecordedFunction::RecordedFunction(std::vector<ArrayBase*> arrays, LaneFunction function, plan::Plan plan, RecordOptions options)
    : state_(std::make_unique<State>()) {
  HFTA_CHECK(!arrays.empty(), "train::record: expected at least one array, got none");
  for (const auto* array : arrays)
    HFTA_CHECK(array->lanes() == arrays[0]->lanes(), "train::record: expected arrays of ", arrays[0]->lanes(), " lanes, got one of ", array->lanes());
  state_->arrays = std::move(arrays);
  state_->function = std::move(function);
  state_->options = std::move(options);
  set_plan(std::move(plan));
}

RecordedFunction::~RecordedFunction() = default;

void RecordedFunction::run(std::span<const Input> given, const After& after) {
  auto& state = *state_;
  std::vector<Input> inputs;
  for (const auto& input : given) inputs.push_back(bindable(input));
  auto& recorded = state.recorded_for(inputs);
  if (State::wants_check(*recorded.now, inputs)) state.check(recorded, inputs);
  const auto workers = state.workers->count();
  const auto groups = static_cast<std::int64_t>(recorded.now->groups.size());
  state.workers->each([&](std::int64_t worker) {
    const at::NoGradGuard no_grad;
    for (std::int64_t g = worker; g < groups; g += workers) state.run_group(recorded, inputs, recorded.now->groups[g], worker, after);
  });
}

const plan::Plan& RecordedFunction::plan() const { return state_->plan; }

void RecordedFunction::set_plan(plan::Plan plan) {
  HFTA_CHECK(plan.width >= 1, "train::record: expected a group width of at least 1, got ", plan.width);
  auto& state = *state_;
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
    for (const auto& difference : recorded.differences) out << "lanes of another structure do not fuse: " << difference << '\n';
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
      std::vector<at::Tensor> copies;
      for (const auto& tensor : state.stacked(group.first, group.width)) copies.push_back(twin(tensor));
      const base::IntraOpThreads threads(state.plan.intra_op_threads);
      executable.bind({copies, State::group_inputs(recorded.now->checked_on, group.first, group.width), state.generators(group.first, group.width, true)});
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
