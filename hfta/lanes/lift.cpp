#include "hfta/lanes/lift.h"

#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "hfta/base/error.h"
#include "hfta/lanes/compare.h"
#include "hfta/lanes/varying.h"
#include "hfta/ops/rule.h"
#include "hfta/program/passes.h"
#include "hfta/program/random.h"
#include "hfta/program/recorder.h"
#include "hfta/program/view.h"

namespace hfta::lanes {
namespace {

namespace ft = at::functorch;
using ops::LaneTensor;
using ops::LaneValue;
using program::Argument;
using program::Node;
using program::Origin;
using program::Program;
using program::Value;
using program::ValueId;

/// LibTorch's batching layer for a scope.
class BatchingLevel {
 public:
  explicit BatchingLevel(std::int64_t lanes)
      : level_(ft::initAndPushDynamicLayer(ft::TransformType::Vmap, c10::SymInt(lanes), ft::RandomnessType::Different)) {}
  ~BatchingLevel() { ft::popDynamicLayerAndDeleteMetadata(); }
  BatchingLevel(const BatchingLevel&) = delete;
  BatchingLevel& operator=(const BatchingLevel&) = delete;
  LaneTensor unwrap(const at::Tensor& tensor) const {
    auto [physical, axis] = ft::unwrapTensorAtLevel(tensor, level_);
    return {physical, axis};
  }
  at::Tensor wrap(const LaneTensor& value) const { return value.axis ? ft::makeBatched(value.tensor, *value.axis, level_) : value.tensor; }

 private:
  std::int64_t level_;
};

bool has_batching_rule(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::FuncTorchBatched) || op.hasKernelForDispatchKey(c10::DispatchKey::FuncTorchBatchedDecomposition);
}

/// Strides are equal where they matter.
bool same_strides(c10::IntArrayRef sizes, c10::IntArrayRef a, c10::IntArrayRef b) {
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1 && a[d] != b[d]) return false;
  }
  return true;
}

bool is_dense(const Value& value) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < value.sizes.size(); ++d) {
    if (value.sizes[d] == 0) return true;
    last += (value.sizes[d] - 1) * value.strides[d];
  }
  return last + 1 == value.numel();
}

/// A value of some memory and where it lies physically: every other view of that memory follows from it.
struct Base {
  Value value;
  LaneTensor tensor;
};

class Lifter {
 public:
  Lifter(const LiftRequest& request, LoweringTable& lowerings)
      : request_(request),
        lowerings_(lowerings),
        program_(*request.lanes[0]),
        lanes_(static_cast<std::int64_t>(request.lanes.size())),
        varies_(lanes_ == 1 ? std::vector<bool>(program_.memories.size(), false) : varying_memories(request.lanes, request.input_is_per_lane)),
        lifted_(program_.values.size()),
        bases_(program_.memories.size()),
        context_{lanes_, request.generators} {
    const auto lives = program::lifetimes(program_);
    ends_.resize(program_.nodes.size() + 1);
    last_write_.assign(program_.memories.size(), -1);
    for (std::size_t m = 0; m < lives.size(); ++m)
      if (lives[m].last >= 0) ends_[lives[m].last].push_back(static_cast<std::int32_t>(m));
    for (std::size_t v = 0; v < program_.values.size(); ++v) {
      if (of_memory_.size() <= static_cast<std::size_t>(program_.values[v].memory)) of_memory_.resize(program_.memories.size());
      of_memory_[program_.values[v].memory].push_back(static_cast<ValueId>(v));
    }
    for (std::size_t i = 0; i < program_.nodes.size(); ++i)
      for (const auto written : program::written_inputs(program_.nodes[i].op, program_.nodes[i].inputs))
        program::each_value(program_.nodes[i].inputs[written], [&](ValueId id) { last_write_[memory(id)] = static_cast<std::int32_t>(i); });
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
        run_node(program_.nodes[node_]);
        for (const auto ended : ends_[node_]) forget(ended);
      }
      for (const auto& result : program_.results) results.push_back(result ? dense(*result) : at::Tensor());
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

  std::int32_t memory(ValueId id) const { return program_.values[id].memory; }

  /// State, inputs and constants, before the first node.
  void place_slots() {
    for (std::size_t m = 0; m < program_.memories.size(); ++m) {
      const auto& memory = program_.memories[m];
      if (memory.origin == Origin::Made) continue;
      LaneTensor tensor;
      if (memory.origin == Origin::State) tensor = {request_.state.at(memory.slot), std::nullopt};
      if (memory.origin == Origin::Input) tensor = {request_.inputs.at(memory.slot), std::nullopt};
      if (memory.origin == Origin::Constant) tensor = {varies_[m] ? constants(m) : memory.constant, std::nullopt};
      if (varies_[m]) tensor.axis = 0;
      Value value{.memory = static_cast<std::int32_t>(m), .offset_bytes = 0, .sizes = {}, .strides = {}, .dtype = tensor.tensor.scalar_type()};
      const auto skip = varies_[m] ? 1 : 0;
      value.sizes.assign(tensor.tensor.sizes().begin() + skip, tensor.tensor.sizes().end());
      value.strides.assign(tensor.tensor.strides().begin() + skip, tensor.tensor.strides().end());
      bases_[m] = Base{std::move(value), std::move(tensor)};
    }
  }

  at::Tensor constants(std::size_t m) const {
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
    std::vector<at::Tensor> rows;
    for (const auto* lane : request_.lanes) rows.push_back(lane->memories[m].constant);
    return at::stack(rows);
  }

  void forget(std::int32_t m) {
    bases_[m].reset();
    for (const ValueId id : of_memory_[m]) lifted_[id].reset();
  }

  // ---- values

  /// The view `value` of the memory that `base` is a view of, if the physical layout of one lane is the recorded one.
  std::optional<LaneTensor> derive(const Value& value, const Base& base) const {
    const auto& physical = base.tensor.tensor;
    auto strides = physical.strides().vec();
    std::int64_t lane_bytes = 0;
    const auto base_itemsize = static_cast<std::int64_t>(c10::elementSize(base.value.dtype)), itemsize = static_cast<std::int64_t>(c10::elementSize(value.dtype));
    if (base.tensor.axis) {
      lane_bytes = strides[*base.tensor.axis] * base_itemsize;
      strides.erase(strides.begin() + *base.tensor.axis);
    }
    if (!same_strides(base.value.sizes, strides, base.value.strides) || lane_bytes % itemsize) return std::nullopt;
    Value moved = value;
    const auto begin = physical.storage_offset() * base_itemsize + value.offset_bytes - base.value.offset_bytes;
    moved.offset_bytes = 0;
    if (base.tensor.axis) {
      moved.sizes.insert(moved.sizes.begin(), lanes_);
      moved.strides.insert(moved.strides.begin(), lane_bytes / itemsize);
    }
    if (begin < 0 || begin % itemsize) return std::nullopt;
    return LaneTensor{program::tensor_on(physical.storage(), moved, begin), base.tensor.axis ? std::optional<std::int64_t>(0) : std::nullopt};
  }

  const LaneTensor& of(ValueId id) {
    if (!lifted_[id]) {
      auto& base = bases_[memory(id)];
      TORCH_INTERNAL_ASSERT(base, "no node makes value ", id);
      lifted_[id] = derive(program_.values[id], *base);
      if (!lifted_[id]) lifted_[id] = derive(program_.values[id], relaid(*base));
      TORCH_INTERNAL_ASSERT(lifted_[id], "value ", id, " is no view of its memory");
    }
    return *lifted_[id];
  }

  at::Tensor recorded_layout(const Value& value) const {
    auto sizes = value.sizes, strides = value.strides;
    std::int64_t span = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) span += (sizes[d] - 1) * strides[d];
    sizes.insert(sizes.begin(), lanes_);
    strides.insert(strides.begin(), std::max<std::int64_t>(span, 1));
    return at::empty_strided(sizes, strides, request_options(value));
  }

  at::TensorOptions request_options(const Value& value) const {
    return at::TensorOptions().dtype(value.dtype).device(program_.memories[value.memory].device);
  }

  /// A copy of the memory's base in the recorded layout, lanes outermost. Right only while nobody writes through either afterwards.
  Base relaid(const Base& base) {
    if (last_write_[base.value.memory] >= static_cast<std::int32_t>(node_))
      throw Unsupported(base::message("lanes::lift: expected values whose views keep their layout, got one written later, at node ", node_, ": ",
                                      to_string(program_, program_.nodes[std::min(node_, program_.nodes.size() - 1)])));
    auto copy = recorded_layout(base.value);
    copy.copy_(ops::lanes_first(base.tensor, lanes_));
    Base moved{base.value, {std::move(copy), 0}};
    bases_[base.value.memory] = moved;
    return moved;
  }

  /// A result that belongs to memory which differs between lanes later on, though not yet.
  LaneTensor spread(const Value& value, const LaneTensor& shared) {
    auto copy = recorded_layout(value);
    copy.copy_(shared.tensor.unsqueeze(0).expand(copy.sizes()));
    return {std::move(copy), 0};
  }

  void set(ValueId id, LaneTensor tensor) {
    const auto m = memory(id);
    if (varies_[m] && !tensor.axis) tensor = spread(program_.values[id], tensor);
    if (!bases_[m]) bases_[m] = Base{program_.values[id], tensor};
    lifted_[id] = std::move(tensor);
  }

  at::Tensor dense(ValueId id) {
    if (lanes_ == 1) return of(id).tensor;
    const Value& value = program_.values[id];
    const auto first = ops::lanes_first(of(id), lanes_);
    const auto numel = value.numel();
    if (is_dense(value)) {
      const bool lies_right = first.stride(0) == numel && same_strides(value.sizes, first.strides().slice(1), value.strides);
      if (lies_right || numel == 0) return first;
      auto strides = value.strides;
      auto sizes = value.sizes;
      sizes.insert(sizes.begin(), lanes_);
      strides.insert(strides.begin(), numel);
      auto copy = at::empty_strided(sizes, strides, request_options(value));
      copy.copy_(first);
      return copy;
    }
    return first.contiguous();
  }

  // ---- nodes

  bool varies(const Node& node) const {
    bool any = false;
    const auto look = [&](ValueId id) { any |= varies_[memory(id)]; };
    for (const auto& input : node.inputs) program::each_value(input, look);
    return any;
  }

  LaneValue argument(const Node& node, std::size_t index) {
    const Argument& input = node.inputs[index];
    if (const auto* id = std::get_if<ValueId>(&input)) return of(*id);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&input)) {
      std::vector<LaneTensor> tensors;
      for (const ValueId id : *list) tensors.push_back(of(id));
      return tensors;
    }
    if (const auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&input)) {
      std::vector<std::optional<LaneTensor>> tensors;
      for (const auto& id : *list) tensors.push_back(id ? std::optional(of(*id)) : std::nullopt);
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

  void run_node(const Node& node) {
    if (lanes_ == 1) return run_alone(node);
    const bool random = program::is_random(node.op);
    if (!random && program::is_view(program_, node) && derive_outputs(node)) return;
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
    if (!random && program::is_view(program_, node)) return run_view(node, arguments);
    if (run_rule(node, arguments)) return;
    if (!random && !numbers && has_batching_rule(node.op)) {
      ++report_.batched;
      return set_outputs(node, call_batched(node, arguments));
    }
    run_per_lane(node, arguments);
  }

  /// One lane: the recorded operator itself, or a kernel of ours where it is faster.
  void run_alone(const Node& node) {
    if (!program::is_random(node.op) && program::is_view(program_, node) && derive_outputs(node)) return;
    std::vector<LaneValue> arguments;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) arguments.push_back(argument(node, i));
    ++report_.shared;
    const auto* rules = program::is_random(node.op) ? nullptr : ops::find_rules(node.op.operator_name());
    std::vector<LoweringTable::Candidate> candidates{{"native", [&] { return std::optional(call(node, arguments)); }}};
    std::vector<LaneValue> with_axis;
    if (rules) {
      for (const auto& value : arguments) with_axis.push_back(given_axis(value));
      for (const auto& lowering : rules->lowerings)
        if (lowering.cpu_only) candidates.push_back({std::string(lowering.name), [&] { return lowering.rule(context_, with_axis); }});
    }
    auto chosen = lowerings_.run(candidates.size() > 1 ? LoweringTable::key(node.op, arguments, 1) : std::string(), candidates);
    TORCH_INTERNAL_ASSERT(chosen, "the recorded operator gives results");
    if (chosen->first > 0) {
      count_rule(node, candidates[chosen->first].name);
      for (auto& value : chosen->second) value = without_axis(value);
    }
    set_outputs(node, chosen->second);
  }

  static LaneValue given_axis(const LaneValue& value) {
    if (const auto* tensor = std::get_if<LaneTensor>(&value)) return LaneTensor{tensor->tensor.unsqueeze(0), 0};
    return value;
  }

  static LaneValue without_axis(const LaneValue& value) {
    if (const auto* tensor = std::get_if<LaneTensor>(&value); tensor && tensor->axis) return LaneTensor{tensor->tensor.select(*tensor->axis, 0), std::nullopt};
    return value;
  }

  void count_rule(const Node& node, const std::string& lowering) { ++report_.ruled[node.op.schema().name() + ' ' + lowering]; }

  bool derive_outputs(const Node& node) {
    std::vector<std::pair<ValueId, LaneTensor>> made;
    bool all = true;
    for (const auto& output : node.outputs)
      program::each_value(output, [&](ValueId id) {
        const auto& base = bases_[memory(id)];
        auto tensor = base ? derive(program_.values[id], *base) : std::nullopt;
        all = all && tensor;
        if (all) made.emplace_back(id, std::move(*tensor));
      });
    if (!all) return false;
    for (auto& [id, tensor] : made) lifted_[id] = std::move(tensor);
    return true;
  }

  /// A view whose recorded strides are not those of the physical value.
  void run_view(const Node& node, const std::vector<LaneValue>& arguments) {
    static constexpr std::array<std::string_view, 4> kNeedStrides{"aten::as_strided", "aten::view", "aten::_unsafe_view", "aten::_reshape_alias"};
    const auto& name = node.op.schema().name();
    if (std::find(kNeedStrides.begin(), kNeedStrides.end(), name) == kNeedStrides.end() && has_batching_rule(node.op)) {
      ++report_.batched;
      return set_outputs(node, call_batched(node, arguments));
    }
    const auto* made = std::get_if<ValueId>(&node.outputs[0]);
    const auto* read = std::get_if<ValueId>(&node.inputs[0]);
    TORCH_INTERNAL_ASSERT(made && read, node.op.schema());
    if (name != "aten::as_strided") {
      const auto first = ops::lanes_first(of(*read), lanes_);
      auto sizes = program_.values[*made].sizes;
      sizes.insert(sizes.begin(), lanes_);
      if (program_.values[*made].dtype == program_.values[*read].dtype && at::detail::computeStride(first.sizes(), first.strides(), at::DimVector(sizes)))
        return set(*made, {first.view(sizes), 0});
    }
    auto moved = derive(program_.values[*made], relaid(Base{program_.values[*read], of(*read)}));
    TORCH_INTERNAL_ASSERT(moved, node.op.schema());
    lifted_[*made] = std::move(moved);
  }

  bool allocate(const Node& node) {
    const auto* id = node.outputs.empty() ? nullptr : std::get_if<ValueId>(&node.outputs[0]);
    if (!id) return false;
    const Value& value = program_.values[*id];
    if (varies_[memory(*id)]) {
      set(*id, {recorded_layout(value), 0});
    } else {
      set(*id, {at::empty_strided(value.sizes, value.strides, request_options(value)), std::nullopt});
    }
    return true;
  }

  bool run_rule(const Node& node, const std::vector<LaneValue>& arguments) {
    const auto* rules = ops::find_rules(node.op.operator_name());
    if (!rules) return false;
    std::vector<LoweringTable::Candidate> candidates;
    const bool on_cpu = request_.state.empty() || request_.state[0].is_cpu();
    for (const auto& lowering : rules->lowerings)
      if (on_cpu || !lowering.cpu_only) candidates.push_back({std::string(lowering.name), [&] { return lowering.rule(context_, arguments); }});
    // Timing would draw: a random operator takes its first lowering.
    if (program::is_random(node.op) && candidates.size() > 1) candidates.resize(1);
    auto chosen = lowerings_.run(candidates.size() > 1 ? LoweringTable::key(node.op, arguments, lanes_) : std::string(), candidates);
    if (!chosen) return false;
    count_rule(node, candidates[chosen->first].name);
    set_outputs(node, chosen->second);
    return true;
  }

  // ---- calls

  template <typename Wrap>
  c10::IValue stack_value(const LaneValue& value, const c10::Argument& formal, Wrap&& wrap) const {
    if (const auto* tensor = std::get_if<LaneTensor>(&value)) return wrap(*tensor);
    if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value)) {
      c10::List<at::Tensor> tensors;
      for (const auto& tensor : *list) tensors.push_back(wrap(tensor));
      return tensors;
    }
    if (const auto* list = std::get_if<std::vector<std::optional<LaneTensor>>>(&value)) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const auto& tensor : *list) tensors.push_back(tensor ? std::optional(wrap(*tensor)) : std::nullopt);
      return tensors;
    }
    const auto& plain = std::get<c10::IValue>(value);
    if (plain.isNone() && formal.type()->kind() == c10::TypeKind::TensorType) return at::Tensor();
    return plain;
  }

  template <typename Wrap, typename Unwrap>
  std::vector<LaneValue> call_with(const Node& node, const std::vector<LaneValue>& arguments, Wrap&& wrap, Unwrap&& unwrap) const {
    torch::jit::Stack stack;
    const auto& formal = node.op.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) stack.push_back(stack_value(arguments[i], formal[i], wrap));
    const at::AutoGradMode grad_mode(node.grad_mode);
    node.op.callBoxed(stack);
    std::vector<LaneValue> results;
    for (const auto& result : stack) {
      if (result.isTensor() && result.toTensor().defined()) {
        results.emplace_back(unwrap(result.toTensor()));
      } else if (result.isTensorList()) {
        std::vector<LaneTensor> list;
        for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(unwrap(tensor));
        results.emplace_back(std::move(list));
      } else {
        results.emplace_back(result.isTensor() ? c10::IValue() : result);
      }
    }
    return results;
  }

  std::vector<LaneValue> call(const Node& node, const std::vector<LaneValue>& arguments) const {
    return call_with(
        node, arguments, [](const LaneTensor& value) { return value.tensor; }, [](const at::Tensor& tensor) { return LaneTensor{tensor, std::nullopt}; });
  }

  std::vector<LaneValue> call_batched(const Node& node, const std::vector<LaneValue>& arguments) const {
    const BatchingLevel level(lanes_);
    return call_with(
        node, arguments, [&](const LaneTensor& value) { return level.wrap(value); }, [&](const at::Tensor& tensor) { return level.unwrap(tensor); });
  }

  LaneValue of_lane(const LaneValue& value, const Argument& recorded, std::int64_t lane) const {
    if (const auto* numbers = std::get_if<ops::LaneNumbers>(&value)) return c10::IValue(numbers->of_lane[lane]);
    if (std::holds_alternative<program::LaneGenerator>(recorded)) return c10::IValue(request_.generators.at(lane));
    const auto row = [&](const LaneTensor& tensor) { return LaneTensor{ops::lane_of(tensor, lane), std::nullopt}; };
    if (const auto* tensor = std::get_if<LaneTensor>(&value)) return row(*tensor);
    if (const auto* list = std::get_if<std::vector<LaneTensor>>(&value)) {
      std::vector<LaneTensor> rows;
      for (const auto& tensor : *list) rows.push_back(row(tensor));
      return rows;
    }
    if (const auto* list = std::get_if<std::vector<std::optional<LaneTensor>>>(&value)) {
      std::vector<std::optional<LaneTensor>> rows;
      for (const auto& tensor : *list) rows.push_back(tensor ? std::optional(row(*tensor)) : std::nullopt);
      return rows;
    }
    return value;
  }

  void run_per_lane(const Node& node, const std::vector<LaneValue>& arguments) {
    ++report_.looped[node.op.schema().name()];
    std::vector<std::vector<LaneValue>> results;
    for (std::int64_t lane = 0; lane < lanes_; ++lane) {
      std::vector<LaneValue> own;
      for (std::size_t i = 0; i < arguments.size(); ++i) own.push_back(of_lane(arguments[i], node.inputs[i], lane));
      results.push_back(call(node, own));
    }
    std::vector<LaneValue> all;
    const auto& returns = node.op.schema().returns();
    for (std::size_t r = 0; r < results[0].size(); ++r) {
      if (returns[r].alias_info() && returns[r].alias_info()->isWrite()) {
        all.emplace_back(c10::IValue());
        continue;
      }
      all.push_back(stacked(results, r));
    }
    set_outputs(node, all);
  }

  static LaneValue stacked(const std::vector<std::vector<LaneValue>>& results, std::size_t r) {
    if (std::holds_alternative<LaneTensor>(results[0][r])) {
      std::vector<at::Tensor> rows;
      for (const auto& lane : results) rows.push_back(std::get<LaneTensor>(lane[r]).tensor);
      return LaneTensor{at::stack(rows), 0};
    }
    if (const auto* list = std::get_if<std::vector<LaneTensor>>(&results[0][r])) {
      std::vector<LaneTensor> tensors;
      for (std::size_t k = 0; k < list->size(); ++k) {
        std::vector<at::Tensor> rows;
        for (const auto& lane : results) rows.push_back(std::get<std::vector<LaneTensor>>(lane[r])[k].tensor);
        tensors.push_back({at::stack(rows), 0});
      }
      return tensors;
    }
    return results[0][r];
  }

  /// What an operator wrote in place is its argument, which is known already.
  void set_outputs(const Node& node, const std::vector<LaneValue>& results) {
    const auto& returns = node.op.schema().returns();
    for (std::size_t r = 0; r < node.outputs.size(); ++r) {
      if (r < returns.size() && returns[r].alias_info() && returns[r].alias_info()->isWrite()) continue;
      if (const auto* id = std::get_if<ValueId>(&node.outputs[r])) {
        const auto* tensor = std::get_if<LaneTensor>(&results.at(r));
        TORCH_INTERNAL_ASSERT(tensor, node.op.schema(), " gave no tensor as result ", r);
        set(*id, *tensor);
      } else if (const auto* list = std::get_if<std::vector<ValueId>>(&node.outputs[r])) {
        const auto& tensors = std::get<std::vector<LaneTensor>>(results.at(r));
        for (std::size_t k = 0; k < list->size(); ++k) set((*list)[k], tensors.at(k));
      }
    }
  }

  const LiftRequest& request_;
  LoweringTable& lowerings_;
  const Program& program_;
  std::int64_t lanes_;
  std::vector<bool> varies_;  // per memory
  std::vector<std::optional<LaneTensor>> lifted_;
  std::vector<std::optional<Base>> bases_;
  ops::RuleContext context_;
  std::vector<std::vector<std::int32_t>> ends_;  // memories by the node after which nobody uses them
  std::vector<std::vector<ValueId>> of_memory_;
  std::vector<std::int32_t> last_write_;
  std::size_t node_ = 0;
  LiftReport report_;
};

}  // namespace

Lifted lift(const LiftRequest& request, LoweringTable& lowerings) {
  TORCH_INTERNAL_ASSERT(!request.lanes.empty() && request.lanes.size() == request.generators.size());
  return Lifter(request, lowerings).run();
}

}  // namespace hfta::lanes
