#include "hfta/lanes/lift.h"

#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "hfta/base/generator.h"
#include "hfta/lanes/compare.h"
#include "hfta/lanes/lane_calls.h"
#include "hfta/lanes/lifted_values.h"
#include "hfta/lanes/varying.h"
#include "hfta/program/passes.h"
#include "hfta/program/random.h"
#include "hfta/program/recorder.h"

namespace hfta::lanes {
namespace {

using ops::LaneTensor;
using ops::LaneValue;
using program::Argument;
using program::Node;
using program::Origin;
using program::Program;
using program::ValueId;

std::vector<ValueId> outputs_of(const Node& node) {
  std::vector<ValueId> ids;
  for (const auto& output : node.outputs) program::each_value(output, [&](ValueId id) { ids.push_back(id); });
  return ids;
}

LaneValue given_axis(const LaneValue& value) {
  if (const auto* tensor = std::get_if<LaneTensor>(&value)) return LaneTensor{tensor->tensor.unsqueeze(0), 0};
  return value;
}

LaneValue without_axis(const LaneValue& value) {
  if (const auto* tensor = std::get_if<LaneTensor>(&value); tensor && tensor->axis) return LaneTensor{tensor->tensor.select(*tensor->axis, 0), std::nullopt};
  return value;
}

/// Runs the lanes' programs as one, node by node, while a recorder takes down the physical operators.
class Lifter {
 public:
  Lifter(const LiftRequest& request, LoweringTable& lowerings)
      : request_(request),
        lowerings_(lowerings),
        program_(*request.lanes[0]),
        lanes_(static_cast<std::int64_t>(request.lanes.size())),
        values_(program_, lanes_ == 1 ? std::vector<bool>(program_.memories.size(), false) : varying_memories(request.lanes, request.input_is_per_lane, request.state_is_shared), lanes_),
        context_{lanes_, request.generators} {
    for (const auto& node : program_.nodes)
      if (node.rewinds_to) states_before_[static_cast<std::size_t>(*node.rewinds_to)];
  }

  Lifted run() {
    program::Recorder recorder(options());
    std::vector<at::Tensor> results;
    recorder.run([&] {
      const at::NoGradGuard no_grad;
      const at::AutoDispatchBelowADInplaceOrView below;
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      place_slots();
      for (node_ = 0; node_ < program_.nodes.size(); ++node_) {
        values_.advance(node_);
        run_in_turn(program_.nodes[node_]);
      }
      values_.advance(node_);
      for (const auto& result : program_.results) results.push_back(result ? values_.dense(*result) : at::Tensor());
    });
    for (const auto& result : results) recorder.add_result(result);
    return {program::simplified(recorder.finish().program), std::move(report_)};
  }

 private:
  program::RecordOptions options() const {
    program::RecordOptions options;
    for (std::size_t k = 0; k < request_.state.size(); ++k) options.regions.push_back({request_.state[k], Origin::State, static_cast<std::int64_t>(k)});
    for (std::size_t k = 0; k < request_.inputs.size(); ++k) options.regions.push_back({request_.inputs[k], Origin::Input, static_cast<std::int64_t>(k)});
    options.generators = request_.generators;
    return options;
  }

  /// State, inputs and constants, before the first node.
  void place_slots() {
    for (std::size_t m = 0; m < program_.memories.size(); ++m) {
      const auto& memory = program_.memories[m];
      if (memory.origin == Origin::State) values_.place(m, request_.state.at(memory.slot));
      if (memory.origin == Origin::Input) values_.place(m, request_.inputs.at(memory.slot));
      if (memory.origin == Origin::Constant) values_.place(m, values_.memory_varies(m) ? constants(m) : memory.constant);
    }
  }

  at::Tensor constants(std::size_t m) const {
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
    std::vector<at::Tensor> rows;
    for (const auto* lane : request_.lanes) rows.push_back(lane->memories[m].constant);
    return at::stack(rows);
  }

  // ---- arguments and results

  bool varies(const Node& node) const {
    bool any = false;
    for (const auto& input : node.inputs) program::each_value(input, [&](ValueId id) { any |= values_.varies(id); });
    return any;
  }

  LaneValue argument(const Node& node, std::size_t index) {
    const Argument& input = node.inputs[index];
    if (const auto* id = std::get_if<ValueId>(&input)) return values_.of(*id);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&input)) {
      std::vector<LaneTensor> tensors;
      for (const ValueId id : *list) tensors.push_back(values_.of(id));
      return tensors;
    }
    if (const auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&input)) {
      std::vector<std::optional<LaneTensor>> tensors;
      for (const auto& id : *list) tensors.push_back(id ? std::optional(values_.of(*id)) : std::nullopt);
      return tensors;
    }
    if (const auto* generator = std::get_if<program::LaneGenerator>(&input)) return c10::IValue(request_.generators.at(generator->lane));
    if (is_number(input)) {
      ops::LaneNumbers numbers;
      bool differ = false;
      const auto& first = std::get<c10::IValue>(input);
      for (const auto* lane : request_.lanes) {
        const auto& own = std::get<c10::IValue>(lane->nodes[node_].inputs[index]);
        differ |= own != first;
        numbers.of_lane.push_back(own.toScalar());
      }
      if (differ) return numbers;
    }
    return std::get<c10::IValue>(input);
  }

  /// What an operator wrote in place is its argument, which is known already.
  void set_outputs(const Node& node, const std::vector<LaneValue>& results) {
    for (std::size_t r = 0; r < node.outputs.size(); ++r) {
      if (is_written_argument(node.op.schema(), r)) continue;
      if (const auto* id = std::get_if<ValueId>(&node.outputs[r])) {
        const auto* tensor = std::get_if<LaneTensor>(&results.at(r));
        TORCH_INTERNAL_ASSERT(tensor, node.op.schema(), " gave no tensor as result ", r);
        values_.set(*id, *tensor);
      } else if (const auto* list = std::get_if<std::vector<ValueId>>(&node.outputs[r])) {
        const auto& tensors = std::get<std::vector<LaneTensor>>(results.at(r));
        for (std::size_t k = 0; k < list->size(); ++k) values_.set((*list)[k], tensors.at(k));
      }
    }
  }

  void count_rule(const Node& node, const std::string& lowering) { ++report_.ruled[node.op.schema().name() + ' ' + lowering]; }

  // ---- nodes

  /// A node that draws an earlier one's numbers again does so with the generators as they were then.
  void run_in_turn(const Node& node) {
    if (const auto place = states_before_.find(node_); place != states_before_.end()) place->second = generator_states();
    if (!node.rewinds_to) return run_node(node);
    const auto here = generator_states();
    set_generator_states(states_before_.at(static_cast<std::size_t>(*node.rewinds_to)));
    run_node(node);
    set_generator_states(here);
  }

  std::vector<at::Tensor> generator_states() const {
    std::vector<at::Tensor> states;
    for (const auto& generator : request_.generators) states.push_back(base::state_of(generator));
    return states;
  }
  void set_generator_states(const std::vector<at::Tensor>& states) const {
    for (std::size_t lane = 0; lane < states.size(); ++lane) base::set_state_of(request_.generators[lane], states[lane]);
  }

  void run_node(const Node& node) {
    if (lanes_ == 1) return run_alone(node);
    const bool random = program::is_random(node.op);
    const bool is_view = !random && program::is_view(program_, node);
    if (is_view && values_.derive_all(outputs_of(node))) return;
    if (program::is_allocation(node) && allocate(node)) return;
    std::vector<LaneValue> arguments;
    bool numbers = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      arguments.push_back(argument(node, i));
      numbers |= std::holds_alternative<ops::LaneNumbers>(arguments.back());
    }
    if (!random && !numbers && !varies(node)) {
      ++report_.shared;
      return set_outputs(node, call(node, arguments));
    }
    if (is_view) return run_view(node, arguments);
    if (run_rule(node, arguments)) return;
    if (!random && !numbers && has_batching_rule(node.op)) {
      ++report_.batched;
      return set_outputs(node, call_batched(node, arguments, lanes_));
    }
    ++report_.looped[node.op.schema().name()];
    set_outputs(node, call_per_lane(node, arguments, request_.generators));
  }

  /// One lane: the recorded operator itself, or a kernel of ours where it is faster.
  void run_alone(const Node& node) {
    if (!program::is_random(node.op) && program::is_view(program_, node) && values_.derive_all(outputs_of(node))) return;
    std::vector<LaneValue> arguments;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) arguments.push_back(argument(node, i));
    ++report_.shared;
    const auto* rules = on_cpu() ? ops::find_rules(node.op.operator_name()) : nullptr;
    if (program::is_random(node.op)) return draw_alone(node, arguments, rules);
    std::vector<LoweringTable::Candidate> candidates{{"native", [&] { return std::optional(call(node, arguments)); }}};
    std::vector<LaneValue> with_axis;
    if (rules) {
      for (const auto& value : arguments) with_axis.push_back(given_axis(value));
      for (const auto& lowering : rules->lowerings)
        if (lowering.cpu_only) candidates.push_back({std::string(lowering.name), [&] { return as_recorded(node, lowering.rule(context_, with_axis)); }});
    }
    auto chosen = lowerings_.run(candidates.size() > 1 ? LoweringTable::key(node.op, arguments, 1) : std::string(), candidates);
    TORCH_INTERNAL_ASSERT(chosen, "the recorded operator gives results");
    if (chosen->first > 0) count_rule(node, candidates[chosen->first].name);
    set_outputs(node, chosen->second);
  }

  /// A rule's results as the recorded operator would have given them: without the lane axis, in the recorded layout.
  std::optional<std::vector<LaneValue>> as_recorded(const Node& node, std::optional<std::vector<LaneValue>> results) const {
    for (std::size_t r = 0; results && r < results->size(); ++r) {
      auto value = without_axis((*results)[r]);
      const auto* id = r < node.outputs.size() && !is_written_argument(node.op.schema(), r) ? std::get_if<ValueId>(&node.outputs[r]) : nullptr;
      if (auto* tensor = std::get_if<LaneTensor>(&value); tensor && id) tensor->tensor = values_.as_recorded(*id, tensor->tensor);
      (*results)[r] = std::move(value);
    }
    return results;
  }

  /// Timing would draw: kernels of ours draw LibTorch's own numbers, and are taken where there is one.
  void draw_alone(const Node& node, const std::vector<LaneValue>& arguments, const ops::OperatorRules* rules) {
    std::vector<LaneValue> with_axis;
    for (const auto& value : arguments) with_axis.push_back(given_axis(value));
    for (const auto& lowering : rules ? rules->lowerings : std::vector<ops::Lowering>()) {
      auto results = lowering.cpu_only ? as_recorded(node, lowering.rule(context_, with_axis)) : std::nullopt;
      if (!results) continue;
      count_rule(node, std::string(lowering.name));
      return set_outputs(node, *results);
    }
    set_outputs(node, call(node, arguments));
  }

  bool on_cpu() const { return request_.state.empty() || request_.state[0].is_cpu(); }

  bool allocate(const Node& node) {
    const auto* id = node.outputs.empty() ? nullptr : std::get_if<ValueId>(&node.outputs[0]);
    if (id) values_.allocate(*id);
    return id;
  }

  /// A view whose recorded strides are not those of the physical value.
  void run_view(const Node& node, const std::vector<LaneValue>& arguments) {
    static constexpr std::array<std::string_view, 4> kNeedStrides{"aten::as_strided", "aten::view", "aten::_unsafe_view", "aten::_reshape_alias"};
    const auto& name = node.op.schema().name();
    if (std::find(kNeedStrides.begin(), kNeedStrides.end(), name) == kNeedStrides.end() && has_batching_rule(node.op)) {
      ++report_.batched;
      return set_outputs(node, call_batched(node, arguments, lanes_));
    }
    const auto* made = std::get_if<ValueId>(&node.outputs[0]);
    const auto* read = std::get_if<ValueId>(&node.inputs[0]);
    TORCH_INTERNAL_ASSERT(made && read, node.op.schema());
    if (name != "aten::as_strided") {
      const auto first = ops::lanes_first(values_.of(*read), lanes_);
      auto sizes = program_.values[*made].sizes;
      sizes.insert(sizes.begin(), lanes_);
      if (program_.values[*made].dtype == program_.values[*read].dtype && at::detail::computeStride(first.sizes(), first.strides(), at::DimVector(sizes)))
        return values_.set(*made, {first.view(sizes), 0});
    }
    values_.derive_from_copy(*made, *read);
  }

  bool run_rule(const Node& node, const std::vector<LaneValue>& arguments) {
    const auto* rules = ops::find_rules(node.op.operator_name());
    if (!rules) return false;
    std::vector<LoweringTable::Candidate> candidates;
    for (const auto& lowering : rules->lowerings)
      if (on_cpu() || !lowering.cpu_only) candidates.push_back({std::string(lowering.name), [&] { return lowering.rule(context_, arguments); }});
    // Timing would draw: a random operator takes its first lowering.
    if (program::is_random(node.op) && candidates.size() > 1) candidates.resize(1);
    auto chosen = lowerings_.run(candidates.size() > 1 ? LoweringTable::key(node.op, arguments, lanes_) : std::string(), candidates);
    if (!chosen) return false;
    count_rule(node, candidates[chosen->first].name);
    set_outputs(node, chosen->second);
    return true;
  }

  const LiftRequest& request_;
  LoweringTable& lowerings_;
  const Program& program_;
  std::int64_t lanes_;
  LiftedValues values_;
  ops::RuleContext context_;
  std::size_t node_ = 0;
  std::map<std::size_t, std::vector<at::Tensor>> states_before_;  // of the generators, by the node that another one rewinds to
  LiftReport report_;
};

}  // namespace

Lifted lift(const LiftRequest& request, LoweringTable& lowerings) {
  TORCH_INTERNAL_ASSERT(!request.lanes.empty() && request.lanes.size() == request.generators.size());
  return Lifter(request, lowerings).run();
}

}  // namespace hfta::lanes
