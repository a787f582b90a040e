#include "hfta/program/recorder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <map>
#include <mutex>
#include <unordered_map>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/program/overloads.h"
#include "hfta/program/random.h"
#include "hfta/program/refusal.h"

namespace hfta::program {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

WeakStorage weak(const at::Tensor& tensor) { return WeakStorage(tensor.storage().getWeakStorageImpl()); }

/// Bytes from the start of the storage to the first element, and one past the last element.
std::pair<std::int64_t, std::int64_t> byte_range(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return {tensor.storage_offset() * tensor.element_size(), tensor.storage_offset() * tensor.element_size()};
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const auto begin = tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size())};
}

at::Tensor storage_bytes(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  auto copy = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(tensor.device()));
  copy.set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
  return copy.clone();
}

std::string generator_state(const at::Generator& generator) {
  const auto state = base::state_of(generator);
  return {static_cast<const char*>(state.const_data_ptr()), static_cast<std::size_t>(state.nbytes())};
}

std::string describe(const at::Tensor& tensor) {
  return base::message(c10::toString(tensor.scalar_type()), ' ', tensor.sizes());
}

}  // namespace

struct Recorder::State {
  struct KnownStorage {
    WeakStorage storage;  // keeps the address unique, not the data
    std::int32_t memory;
  };
  struct KnownRegion {
    std::int64_t begin, end;
    std::int32_t memory;
  };

  RecordOptions options;
  Recording recording;
  std::mutex mutex;  // autograd may run a device's nodes on a thread of its own
  std::unordered_map<const c10::StorageImpl*, std::vector<KnownRegion>> regions;
  std::unordered_map<const c10::StorageImpl*, KnownStorage> storages;
  std::map<Value, ValueId> ids;
  std::unordered_map<std::string, std::int32_t> random_states;  // lane and generator state -> the first random node that saw it
  std::vector<std::string> after_last_random;                   // per lane
  bool finished = false;

  Program& program() { return recording.program; }

  std::int32_t add_memory(Memory memory) {
    program().memories.push_back(std::move(memory));
    return static_cast<std::int32_t>(program().memories.size()) - 1;
  }

  void add_region(const Region& region) {
    const auto [begin, end] = byte_range(region.tensor);
    Memory memory{.origin = region.origin, .slot = region.slot, .bytes = end - begin, .device = region.tensor.device(), .constant = {}};
    const auto* storage = region.tensor.storage().unsafeGetStorageImpl();
    regions[storage].push_back({begin, end, add_memory(std::move(memory))});
  }

  void check_layout(const at::Tensor& tensor, const c10::OperatorHandle& op) {
    if (!tensor.has_storage() || tensor.layout() != at::kStrided)
      throw Unsupported(base::message("program::Recorder: expected tensors with plain memory, got layout ", tensor.layout(), " at ",
                                      op.schema().operator_name(), ", node ", program().nodes.size()));
  }

  /// The memory of a tensor and where it starts inside the storage; -1 when it is not known.
  std::pair<std::int32_t, std::int64_t> find_memory(const at::Tensor& tensor) const {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    if (const auto found = regions.find(storage); found != regions.end()) {
      const auto at = tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
      for (const auto& region : found->second)
        if ((at >= region.begin && at < region.end) || (at == region.begin && region.begin == region.end)) return {region.memory, region.begin};
    }
    const auto found = storages.find(storage);
    return found == storages.end() ? std::pair<std::int32_t, std::int64_t>{-1, 0} : std::pair<std::int32_t, std::int64_t>{found->second.memory, 0};
  }

  ValueId id_of(const at::Tensor& tensor, std::int32_t memory, std::int64_t begin) {
    Value value{.memory = memory,
                .offset_bytes = tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size()) - begin,
                .sizes = tensor.sizes().vec(),
                .strides = tensor.strides().vec(),
                .dtype = tensor.scalar_type(),
                .conj = tensor.is_conj(),
                .neg = tensor.is_neg(),
                .wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number()};
    const auto [place, added] = ids.emplace(std::move(value), static_cast<ValueId>(program().values.size()));
    if (added) program().values.push_back(place->first);
    return place->second;
  }

  ValueId read(const at::Tensor& tensor, const c10::OperatorHandle& op, std::size_t argument) {
    check_layout(tensor, op);
    auto [memory, begin] = find_memory(tensor);
    if (memory < 0) memory = capture(tensor, op, argument);
    return id_of(tensor, memory, begin);
  }

  std::int32_t capture(const at::Tensor& tensor, const c10::OperatorHandle& op, std::size_t argument) {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    const auto memory = add_memory({.origin = Origin::Constant,
                                    .slot = -1,
                                    .bytes = static_cast<std::int64_t>(tensor.storage().nbytes()),
                                    .device = tensor.device(),
                                    .constant = storage_bytes(tensor)});
    storages.emplace(storage, KnownStorage{weak(tensor), memory});
    recording.captured.push_back({memory, tensor.detach(),
                                  base::message("argument \"", op.schema().arguments()[argument].name(), "\" of ", op.schema().operator_name(),
                                                ", node ", program().nodes.size(), ", ", describe(tensor))});
    return memory;
  }

  ValueId made(const at::Tensor& tensor, const c10::OperatorHandle& op) {
    check_layout(tensor, op);
    auto [memory, begin] = find_memory(tensor);
    if (memory < 0) {
      const auto* storage = tensor.storage().unsafeGetStorageImpl();
      memory = add_memory({.origin = Origin::Made,
                           .slot = -1,
                           .bytes = static_cast<std::int64_t>(tensor.storage().nbytes()),
                           .device = tensor.device(),
                           .constant = {}});
      storages.emplace(storage, KnownStorage{weak(tensor), memory});
    }
    // An operator may have grown its result's memory while it ran (`out=`).
    auto& bytes = program().memories[memory].bytes;
    if (program().memories[memory].origin == Origin::Made) bytes = std::max(bytes, static_cast<std::int64_t>(tensor.storage().nbytes()));
    return id_of(tensor, memory, begin);
  }

  template <typename F>
  Argument argument_of(const c10::IValue& v, F&& id) {
    if (v.isTensor()) return v.toTensor().defined() ? Argument(id(v.toTensor())) : Argument(c10::IValue());
    if (v.isTensorList()) {
      std::vector<ValueId> list;
      for (const at::Tensor& tensor : v.toTensorVector()) list.push_back(id(tensor));
      return list;
    }
    if (v.isList() && v.toList().elementType()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      std::vector<std::optional<ValueId>> list;
      for (const c10::IValue& element : v.toListRef())
        list.push_back(element.isTensor() && element.toTensor().defined() ? std::optional(id(element.toTensor())) : std::nullopt);
      return list;
    }
    if (const auto lane = known_generator(v)) return *lane;
    if (auto lanes = known_generators(v); !lanes.empty()) return lanes;
    return v;
  }

  std::optional<LaneGenerator> known_generator(const c10::IValue& v) const {
    if (v.isGenerator())
      for (std::size_t lane = 0; lane < options.generators.size(); ++lane)
        if (v.toGenerator() == options.generators[lane]) return LaneGenerator{static_cast<std::int64_t>(lane)};
    return std::nullopt;
  }

  /// A list of generators that are all lanes' own; else empty.
  std::vector<LaneGenerator> known_generators(const c10::IValue& v) const {
    std::vector<LaneGenerator> lanes;
    if (!v.isList()) return lanes;
    for (const c10::IValue& element : v.toListRef()) {
      const auto lane = known_generator(element);
      if (!lane) return {};
      lanes.push_back(*lane);
    }
    return lanes;
  }

  /// The operator was called with its lanes' generators, as fused rules do.
  bool names_generators(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
    for (auto argument = stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()); argument != stack.end(); ++argument)
      if (known_generator(*argument) || !known_generators(*argument).empty()) return true;
    return false;
  }

  static std::vector<std::size_t> lanes_of(const Node& node) {
    std::vector<std::size_t> lanes;
    for (const auto& input : node.inputs) {
      if (const auto* one = std::get_if<LaneGenerator>(&input)) lanes.push_back(static_cast<std::size_t>(one->lane));
      if (const auto* list = std::get_if<std::vector<LaneGenerator>>(&input))
        for (const auto& each : *list) lanes.push_back(static_cast<std::size_t>(each.lane));
    }
    return lanes;
  }

  /// A generator that was put back to where an earlier random node began (checkpoint recompute) draws that node's numbers again. A node that
  /// draws for several lanes is known by its first one: lanes are put back together.
  void mark_rewind(Node& node, std::size_t lane, const std::string& state) {
    const auto index = static_cast<std::int32_t>(program().nodes.size());
    const auto [place, added] = random_states.emplace(std::to_string(lane) + state, index);
    if (!added && state != after_last_random[lane]) node.rewinds_to = place->second;
  }

  void take_down(c10::OperatorHandle op, torch::jit::Stack& stack) {
    if (is_random(op)) {
      if (options.generators.empty())
        throw Unsupported(base::message("program::Recorder: expected no random operator, got ", op.schema().operator_name()));
      if (!names_generators(op, stack)) op = with_generator(op, stack, options.generators[0]);
    }
    const auto arguments = op.schema().arguments().size(), results = op.schema().returns().size();
    torch::jit::Stack taken(stack.end() - static_cast<std::ptrdiff_t>(arguments), stack.end());
    Node node{.op = op, .inputs = {}, .outputs = {}, .grad_mode = at::GradMode::is_enabled(), .rewinds_to = {}};
    {
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < taken.size(); ++i)
        node.inputs.push_back(argument_of(taken[i], [&](const at::Tensor& tensor) { return read(tensor, op, i); }));
    }
    const auto lanes = is_random(op) ? lanes_of(node) : std::vector<std::size_t>();
    if (!lanes.empty()) mark_rewind(node, lanes[0], generator_state(options.generators[lanes[0]]));
    op.callBoxed(stack);
    for (const auto lane : lanes) after_last_random[lane] = generator_state(options.generators[lane]);
    const std::lock_guard lock(mutex);
    for (auto result = stack.end() - static_cast<std::ptrdiff_t>(results); result != stack.end(); ++result)
      node.outputs.push_back(argument_of(*result, [&](const at::Tensor& tensor) { return made(tensor, op); }));
    if (op.hasTag(at::Tag::inplace_view)) {
      const auto twin = functional_twin(op);
      if (!twin)
        throw Unsupported(base::message("program::Recorder: expected operators that keep their tensors' memory, got ", op.schema().operator_name(),
                                        ", node ", program().nodes.size()));
      node.op = *twin;
    }
    program().nodes.push_back(std::move(node));
  }
};

Recorder::Recorder(RecordOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->after_last_random.resize(state_->options.generators.size());
  for (const auto& region : state_->options.regions) state_->add_region(region);
}

Recorder::~Recorder() = default;

void Recorder::run(const std::function<void()>& step) {
  const InterceptScope scope(*this);
  step();
}

void Recorder::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (const auto reason = why_refused(op, stack))
    throw Unsupported(base::message("program::Recorder: expected a step that can be recorded, got ", op.schema().operator_name(), ", which ",
                                    *reason, ", at node ", state_->program().nodes.size()));
  if (op.schema().name().starts_with("aten::_foreach_")) {  // one operator per tensor
    const InterceptScope again(*this);
    return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
  }
  if (leaves_no_trace(op)) return op.callBoxed(stack);
  state_->take_down(op, stack);
}

at::Generator Recorder::generator() const { return state_->options.generators.empty() ? at::Generator() : state_->options.generators[0]; }

void Recorder::add_result(const at::Tensor& tensor) {
  auto& state = *state_;
  if (!tensor.defined()) {
    state.program().results.emplace_back(std::nullopt);
    return;
  }
  const auto [memory, begin] = state.find_memory(tensor);
  HFTA_CHECK(memory >= 0, "program::Recorder: expected results that the step made, got a tensor from outside, ", describe(tensor));
  state.program().results.emplace_back(state.id_of(tensor, memory, begin));
}

Recording Recorder::finish() {
  TORCH_INTERNAL_ASSERT(!state_->finished, "finish() may be called once");
  state_->finished = true;
  return std::move(state_->recording);
}

}  // namespace hfta::program
