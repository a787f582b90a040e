#include "hfta/program/executable.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <chrono>
#include <mutex>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/base/memory.h"
#include "hfta/program/overloads.h"
#include "hfta/program/passes.h"
#include "hfta/program/view.h"

namespace hfta::program {
namespace {

/// Neither autograd, nor autocast, nor the batching layer see a replayed operator.
struct BelowEverything {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::impl::ExcludeDispatchKeyGuard no_batching{
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                           c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchVmapMode,
                           c10::DispatchKey::FuncTorchBatchedDecomposition})};
};

/// LibTorch's `out` kernel of batch norm adds to the statistics that are in the given memory, unless its input is contiguous.
bool reads_what_it_is_given(const Program& program, const Node& node) {
  if (node.op.schema().name() != "aten::native_batch_norm") return false;
  const auto& input = program.values[std::get<ValueId>(node.inputs[0])];
  return !input.is_contiguous() && !c10::is_channels_last_strides_2d(input.sizes, input.strides) && !c10::is_channels_last_strides_3d(input.sizes, input.strides);
}

/// A result that the operator hands out and whose memory is taken over.
struct Taken {
  std::size_t output;
  at::Tensor tensor;         // the static tensor that readers see
  c10::StorageImpl* memory;
};

struct Step {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
  std::vector<Taken> taken;
  std::vector<c10::StorageImpl*> freed;  // after this step
  std::vector<std::pair<std::size_t, Argument>> generators;  // argument, which lane's or lanes'
  bool grad_mode = false;
  std::optional<std::int32_t> rewinds_to;
  bool keeps_generator_state = false;
  std::vector<at::Tensor> generator_states;
};

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

c10::IValue generators_of(const Argument& lanes, const std::vector<at::Generator>& generators) {
  if (const auto* one = std::get_if<LaneGenerator>(&lanes)) return generators.at(one->lane);
  c10::List<at::Generator> list;
  for (const auto& lane : std::get<std::vector<LaneGenerator>>(lanes)) list.push_back(generators.at(lane.lane));
  return list;
}

std::vector<std::int64_t> lanes_of(const Argument& generators) {
  if (const auto* one = std::get_if<LaneGenerator>(&generators)) return {one->lane};
  std::vector<std::int64_t> lanes;
  for (const auto& lane : std::get<std::vector<LaneGenerator>>(generators)) lanes.push_back(lane.lane);
  return lanes;
}

}  // namespace

void Arena::reserve(std::int64_t bytes) {
  if (block_.defined() && block_.numel() >= bytes) return;
  block_ = at::Tensor();
  block_ = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
  if (device_.is_cpu()) base::prefer_large_pages(block_.mutable_data_ptr(), block_.nbytes());
}

void Arena::spoil() {
  if (block_.defined()) block_.fill_(0xFF);
}

void Arena::shrink(std::int64_t bytes) {
  if (this->bytes() <= bytes) return;
  block_ = at::Tensor();
  reserve(bytes);
}

void* Arena::data() const { return block_.defined() ? block_.data_ptr() : nullptr; }
std::int64_t Arena::bytes() const { return block_.defined() ? block_.numel() : 0; }

struct Executable::State {
  Program program;
  std::shared_ptr<Arena> arena;
  Layout layout;
  std::vector<c10::Storage> storages;  // per memory
  std::vector<bool> in_arena;
  std::vector<at::Tensor> values, results;
  std::vector<Step> steps;
  std::vector<c10::StorageImpl*> dynamic;  // memories taken over from operators
  std::vector<at::Generator> generators;
  const void* arena_data = nullptr;

  void make_storages(const std::vector<bool>& handed_out) {
    for (std::size_t m = 0; m < program.memories.size(); ++m) {
      const auto& memory = program.memories[m];
      if (memory.origin == Origin::Constant) {
        storages.push_back(memory.constant.storage());
        in_arena.push_back(false);
        continue;
      }
      storages.emplace_back(c10::Storage::use_byte_size_t(), static_cast<size_t>(memory.bytes), at::DataPtr(nullptr, memory.device),
                            /*allocator=*/nullptr, /*resizable=*/false);
      in_arena.push_back(memory.origin == Origin::Made && !handed_out[m]);
      if (memory.origin == Origin::Made && handed_out[m]) dynamic.push_back(storages.back().unsafeGetStorageImpl());
    }
  }

  c10::IValue argument_of(const Argument& argument) const {
    if (const auto* plain = std::get_if<c10::IValue>(&argument)) return *plain;
    if (const auto* id = std::get_if<ValueId>(&argument)) return values[*id];
    if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      c10::List<at::Tensor> tensors;
      for (const ValueId id : *list) tensors.push_back(values[id]);
      return tensors;
    }
    if (const auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&argument)) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const auto& id : *list) tensors.push_back(id ? std::optional(values[*id]) : std::nullopt);
      return tensors;
    }
    return {};  // a lane's generator: put in when bound
  }

  /// Kernels that take an undefined tensor where the schema says `Tensor` see one, not None.
  c10::IValue typed(const c10::Argument& argument, c10::IValue value) const {
    if (value.isNone() && argument.type()->kind() == c10::TypeKind::TensorType) return at::Tensor();
    return value;
  }

  Step step_of(const Node& node, const std::optional<OutOverload>& out) {
    Step step{.op = out ? out->op : node.op, .arguments = {}, .taken = {}, .freed = {}, .generators = {}, .grad_mode = node.grad_mode,
              .rewinds_to = node.rewinds_to, .keeps_generator_state = false, .generator_states = {}};
    const auto& formal = step.op.schema().arguments();
    for (std::size_t i = 0; i < formal.size(); ++i) {
      const std::int64_t from = out ? out->from[i] : static_cast<std::int64_t>(i);
      const auto& argument = from < 0 ? node.outputs[-1 - from] : node.inputs[from];
      if (std::holds_alternative<LaneGenerator>(argument) || std::holds_alternative<std::vector<LaneGenerator>>(argument)) step.generators.emplace_back(i, argument);
      step.arguments.push_back(typed(formal[i], argument_of(argument)));
    }
    if (out) return step;
    const auto& returns = node.op.schema().returns();
    for (std::size_t r = 0; r < node.outputs.size(); ++r) {
      if (r < returns.size() && returns[r].alias_info() && returns[r].alias_info()->isWrite()) continue;  // written in place
      if (const auto* id = std::get_if<ValueId>(&node.outputs[r]))
        step.taken.push_back({r, values[*id], storages[program.values[*id].memory].unsafeGetStorageImpl()});
    }
    return step;
  }

  void build() {
    const auto device = program.memories.empty() ? c10::Device(c10::kCPU) : program.memories[0].device;
    const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
    std::vector<std::optional<OutOverload>> outs;
    std::vector<bool> handed_out(program.memories.size(), false), seen(program.memories.size(), false);
    for (const auto& node : program.nodes) {
      bool values_only = true;
      for (const auto& output : node.outputs) values_only &= std::holds_alternative<ValueId>(output);
      outs.push_back(values_only && !reads_what_it_is_given(program, node) ? out_overload(node.op, key) : std::nullopt);
      for (const auto& input : node.inputs) each_value(input, [&](ValueId id) { seen[program.values[id].memory] = true; });
      for (const auto& output : node.outputs)
        each_value(output, [&](ValueId id) {
          const auto memory = program.values[id].memory;
          if (!outs.back() && !seen[memory]) handed_out[memory] = true;
          seen[memory] = true;
        });
    }
    make_storages(handed_out);
    for (const auto& value : program.values) values.push_back(tensor_on(storages[value.memory], value));
    for (std::size_t i = 0; i < program.nodes.size(); ++i) steps.push_back(list_step(program.nodes[i], outs[i]));
    for (const auto& step : steps)
      if (step.rewinds_to) steps[*step.rewinds_to].keeps_generator_state = true;
    plan_memory();
    for (const auto& result : program.results) results.push_back(result ? values[*result] : at::Tensor());
  }

  /// Operators that return a list of tensors (`unbind_copy`, `_foreach`) are taken over entry by entry.
  Step list_step(const Node& node, const std::optional<OutOverload>& out) {
    for (const auto& output : node.outputs)
      if (std::holds_alternative<std::vector<ValueId>>(output) && !is_view(program, node))
        throw Unsupported(base::message("program::Executable: expected operators that return tensors, got a list from ",
                                        node.op.schema().operator_name()));
    return step_of(node, out);
  }

  void plan_memory() {
    const auto lives = lifetimes(program);
    std::vector<std::int64_t> bytes(program.memories.size(), 0);
    for (std::size_t m = 0; m < bytes.size(); ++m)
      if (in_arena[m]) bytes[m] = program.memories[m].bytes;
    layout = lay_out(lives, bytes);
    arena->reserve(layout.bytes);
    for (std::size_t m = 0; m < bytes.size(); ++m)
      if (program.memories[m].origin == Origin::Made && !in_arena[m] && lives[m].last >= 0 && lives[m].last < static_cast<std::int32_t>(steps.size()))
        steps[lives[m].last].freed.push_back(storages[m].unsafeGetStorageImpl());
  }

  static void point(const c10::Storage& storage, void* data) {
    auto* impl = storage.unsafeGetStorageImpl();
    impl->set_data_ptr_noswap(at::DataPtr(data, impl->device()));
  }

  void bind_arena() {
    arena->reserve(layout.bytes);
    if (arena_data == arena->data() && arena_data) return;
    for (std::size_t m = 0; m < storages.size(); ++m)
      if (in_arena[m]) point(storages[m], static_cast<char*>(arena->data()) + layout.offsets[m]);
    arena_data = arena->data();
  }

  void bind_slot(std::size_t m, const std::vector<at::Tensor>& slots, const char* what) {
    const auto& memory = program.memories[m];
    TORCH_INTERNAL_ASSERT(memory.slot < static_cast<std::int64_t>(slots.size()), what, " slot ", memory.slot);
    const auto& tensor = slots[memory.slot];
    HFTA_CHECK(tensor.device() == memory.device, "program::Executable: expected ", what, ' ', memory.slot, " on ", memory.device, ", got ",
               tensor.device());
    point(storages[m], const_cast<void*>(tensor.const_data_ptr()));  // asking for memory to write would make a copy of a lazy one
  }

  void take_over(const Taken& taken, at::Tensor result) const {
    auto* source = result.storage().unsafeGetStorageImpl();
    const bool same_view = result.strides() == taken.tensor.strides() && result.storage_offset() == taken.tensor.storage_offset();
    if (!taken.memory->data()) {
      if (same_view && result.storage().use_count() == 1 && source->nbytes() >= taken.memory->nbytes()) {
        taken.memory->set_data_ptr_noswap(std::move(source->_mutable_data_ptr_no_checks()));
        return;
      }
      auto fresh = at::empty({static_cast<std::int64_t>(taken.memory->nbytes())}, at::TensorOptions().dtype(at::kByte).device(result.device()));
      taken.memory->set_data_ptr_noswap(std::move(fresh.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
    }
    taken.tensor.copy_(result);
  }

  void call(Step& step, torch::jit::Stack& stack) {
    stack.assign(step.arguments.begin(), step.arguments.end());
    try {
      const at::AutoGradMode grad_mode(step.grad_mode);
      step.op.callBoxed(stack);
    } catch (const c10::Error& e) {
      throw Error(base::message("program::Executable: expected every node to run, got \"", first_line(e.what_without_backtrace()), "\" at node ", &step - steps.data(), ": ",
                                to_string(program, program.nodes[&step - steps.data()])));
    }
    for (const auto& taken : step.taken) {
      at::Tensor result = std::move(stack[taken.output]).toTensor();
      HFTA_CHECK(result.sizes() == taken.tensor.sizes(), "program::Executable: expected ", step.op.schema().operator_name(), " to give shape ",
                 taken.tensor.sizes(), " as recorded, got ", result.sizes());
      take_over(taken, std::move(result));
    }
    stack.clear();
    for (auto* memory : step.freed) memory->set_data_ptr_noswap(at::DataPtr(nullptr, memory->device()));
  }

  void call_random(Step& step, torch::jit::Stack& stack) {
    const auto lanes = lanes_of(step.generators[0].second);
    const auto states = [&] {
      std::vector<at::Tensor> now;
      for (const auto lane : lanes) now.push_back(base::state_of(generators[lane]));
      return now;
    };
    const auto set = [&](const std::vector<at::Tensor>& to) {
      TORCH_INTERNAL_ASSERT(to.size() == lanes.size(), step.op.schema());
      for (std::size_t k = 0; k < lanes.size(); ++k) base::set_state_of(generators[lanes[k]], to[k]);
    };
    if (step.keeps_generator_state) step.generator_states = states();
    if (!step.rewinds_to) return call(step, stack);
    const auto here = states();
    set(steps[*step.rewinds_to].generator_states);
    call(step, stack);
    set(here);
  }

  void run_step(Step& step, torch::jit::Stack& stack) {
    if (step.keeps_generator_state || step.rewinds_to) return call_random(step, stack);
    call(step, stack);
  }

  void forget_dynamic() {
    for (auto* memory : dynamic) memory->set_data_ptr_noswap(at::DataPtr(nullptr, memory->device()));
  }
};

Executable::Executable(Program program, std::shared_ptr<Arena> arena) : state_(std::make_unique<State>()) {
  const BelowEverything below;
  state_->program = std::move(program);
  state_->arena = std::move(arena);
  state_->build();
}

Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;

void Executable::bind(const Binding& binding) {
  auto& state = *state_;
  state.bind_arena();
  for (std::size_t m = 0; m < state.program.memories.size(); ++m) {
    const auto origin = state.program.memories[m].origin;
    if (origin == Origin::State) state.bind_slot(m, binding.state, "state");
    if (origin == Origin::Input) state.bind_slot(m, binding.inputs, "input");
  }
  state.generators = binding.generators;
  for (auto& step : state.steps)
    for (const auto& [argument, lanes] : step.generators) step.arguments[argument] = generators_of(lanes, binding.generators);
}

void Executable::spoil_memory() {
  const BelowEverything below;
  state_->arena->spoil();
}

void Executable::run() {
  const BelowEverything below;
  auto& state = *state_;
  state.bind_arena();
  state.forget_dynamic();
  torch::jit::Stack stack;
  for (auto& step : state.steps) state.run_step(step, stack);
}

std::vector<double> Executable::profile(std::int64_t repeats) {
  using Clock = std::chrono::steady_clock;
  const BelowEverything below;
  auto& state = *state_;
  std::vector<double> milliseconds(state.steps.size(), 0);
  torch::jit::Stack stack;
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
    state.bind_arena();
    state.forget_dynamic();
    for (std::size_t i = 0; i < state.steps.size(); ++i) {
      const auto start = Clock::now();
      state.run_step(state.steps[i], stack);
      milliseconds[i] += std::chrono::duration<double, std::milli>(Clock::now() - start).count() / static_cast<double>(repeats);
    }
  }
  return milliseconds;
}

const at::Tensor& Executable::result(std::size_t index) const { return state_->results.at(index); }
std::size_t Executable::results() const { return state_->results.size(); }
const Program& Executable::program() const { return state_->program; }
std::int64_t Executable::arena_bytes() const { return state_->layout.bytes; }

}  // namespace hfta::program
