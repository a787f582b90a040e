#include "hfta/lanes/lifted_values.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "hfta/base/error.h"
#include "hfta/program/passes.h"
#include "hfta/program/view.h"

namespace hfta::lanes {
namespace {

using ops::LaneTensor;
using program::Value;
using program::ValueId;

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

}  // namespace

LiftedValues::LiftedValues(const program::Program& program, std::vector<bool> varies, std::int64_t lanes)
    : program_(program), varies_(std::move(varies)), lanes_(lanes), lifted_(program.values.size()), bases_(program.memories.size()) {
  note_uses();
}

void LiftedValues::note_uses() {
  const auto lives = program::lifetimes(program_);
  ends_.resize(program_.nodes.size() + 1);
  for (std::size_t m = 0; m < lives.size(); ++m)
    if (lives[m].last >= 0) ends_[lives[m].last].push_back(static_cast<std::int32_t>(m));
  of_memory_.resize(program_.memories.size());
  for (std::size_t v = 0; v < program_.values.size(); ++v) of_memory_[program_.values[v].memory].push_back(static_cast<ValueId>(v));
  last_write_.assign(program_.memories.size(), -1);
  for (std::size_t i = 0; i < program_.nodes.size(); ++i)
    for (const auto written : program::written_inputs(program_.nodes[i].op, program_.nodes[i].inputs))
      program::each_value(program_.nodes[i].inputs[written], [&](ValueId id) { last_write_[memory(id)] = static_cast<std::int32_t>(i); });
}

void LiftedValues::place(std::size_t m, at::Tensor tensor) {
  const auto skip = varies_[m] ? 1 : 0;
  Value value{.memory = static_cast<std::int32_t>(m), .offset_bytes = 0, .sizes = {}, .strides = {}, .dtype = tensor.scalar_type()};
  value.sizes.assign(tensor.sizes().begin() + skip, tensor.sizes().end());
  value.strides.assign(tensor.strides().begin() + skip, tensor.strides().end());
  bases_[m] = Base{std::move(value), {std::move(tensor), varies_[m] ? std::optional<std::int64_t>(0) : std::nullopt}};
}

void LiftedValues::set(ValueId id, LaneTensor tensor) {
  const auto m = memory(id);
  if (varies_[m] && !tensor.axis) {
    auto copy = recorded_layout(program_.values[id]);
    copy.copy_(tensor.tensor.unsqueeze(0).expand(copy.sizes()));
    tensor = {std::move(copy), 0};
  }
  if (!bases_[m]) bases_[m] = Base{program_.values[id], tensor};
  lifted_[id] = std::move(tensor);
}

void LiftedValues::allocate(ValueId id) {
  const Value& value = program_.values[id];
  if (varies(id)) return set(id, {recorded_layout(value), 0});
  set(id, {at::empty_strided(value.sizes, value.strides, options_of(value)), std::nullopt});
}

/// The view `value` of the memory that `base` is a view of, if the physical layout of one lane is the recorded one.
std::optional<LaneTensor> LiftedValues::derive(const Value& value, const Base& base) const {
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

bool LiftedValues::derive_all(const std::vector<ValueId>& ids) {
  std::vector<LaneTensor> made;
  for (const ValueId id : ids) {
    const auto& base = bases_[memory(id)];
    auto tensor = base ? derive(program_.values[id], *base) : std::nullopt;
    if (!tensor) return false;
    made.push_back(std::move(*tensor));
  }
  for (std::size_t k = 0; k < ids.size(); ++k) lifted_[ids[k]] = std::move(made[k]);
  return true;
}

void LiftedValues::derive_from_copy(ValueId id, ValueId from) {
  auto moved = derive(program_.values[id], relaid(Base{program_.values[from], of(from)}));
  TORCH_INTERNAL_ASSERT(moved, "value ", id, " is no view of value ", from);
  lifted_[id] = std::move(moved);
}

const LaneTensor& LiftedValues::of(ValueId id) {
  if (!lifted_[id]) {
    auto& base = bases_[memory(id)];
    TORCH_INTERNAL_ASSERT(base, "no node makes value ", id);
    lifted_[id] = derive(program_.values[id], *base);
    if (!lifted_[id]) lifted_[id] = derive(program_.values[id], relaid(*base));
    TORCH_INTERNAL_ASSERT(lifted_[id], "value ", id, " is no view of its memory");
  }
  return *lifted_[id];
}

at::Tensor LiftedValues::dense(ValueId id) {
  if (lanes_ == 1) return of(id).tensor;
  const Value& value = program_.values[id];
  const auto first = ops::lanes_first(of(id), lanes_);
  const auto numel = value.numel();
  if (!is_dense(value)) return first.contiguous();
  if (numel == 0 || (first.stride(0) == numel && same_strides(value.sizes, first.strides().slice(1), value.strides))) return first;
  auto sizes = value.sizes, strides = value.strides;
  sizes.insert(sizes.begin(), lanes_);
  strides.insert(strides.begin(), numel);
  auto copy = at::empty_strided(sizes, strides, options_of(value));
  copy.copy_(first);
  return copy;
}

at::Tensor LiftedValues::as_recorded(ValueId id, at::Tensor tensor) const {
  const Value& value = program_.values[id];
  if (same_strides(value.sizes, tensor.strides(), value.strides)) return tensor;
  auto copy = at::empty_strided(value.sizes, value.strides, options_of(value));
  copy.copy_(tensor);
  return copy;
}

void LiftedValues::advance(std::size_t node) {
  for (; node_ < node; ++node_)
    for (const auto m : ends_[node_]) {
      bases_[m].reset();
      for (const ValueId id : of_memory_[m]) lifted_[id].reset();
    }
}

at::Tensor LiftedValues::recorded_layout(const Value& value) const {
  auto sizes = value.sizes, strides = value.strides;
  std::int64_t span = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) span += (sizes[d] - 1) * strides[d];
  sizes.insert(sizes.begin(), lanes_);
  strides.insert(strides.begin(), std::max<std::int64_t>(span, 1));
  return at::empty_strided(sizes, strides, options_of(value));
}

at::TensorOptions LiftedValues::options_of(const Value& value) const {
  return at::TensorOptions().dtype(value.dtype).device(program_.memories[value.memory].device);
}

/// A copy of the memory's base in the recorded layout, lanes outermost. Right only while nobody writes through either afterwards.
LiftedValues::Base LiftedValues::relaid(const Base& base) {
  if (last_write_[base.value.memory] >= static_cast<std::int32_t>(node_))
    throw Unsupported(base::message("lanes::lift: expected values whose views keep their layout, got one written later, at node ", node_, ": ",
                                    to_string(program_, program_.nodes[std::min(node_, program_.nodes.size() - 1)])));
  auto copy = recorded_layout(base.value);
  copy.copy_(ops::lanes_first(base.tensor, lanes_));
  Base moved{base.value, {std::move(copy), 0}};
  bases_[base.value.memory] = moved;
  return moved;
}

}  // namespace hfta::lanes
