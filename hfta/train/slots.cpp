#include "hfta/train/slots.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <utility>

#include "hfta/base/error.h"

namespace hfta::train {

namespace {

/// Visits the arrays' stacks by slot.
template <typename Visit>
void each_stack(const std::vector<lanes::ArrayBase*>& arrays, const Visit& visit) {
  std::int64_t slot = 0;
  for (auto* array : arrays)
    for (const auto* stacks : {&array->parameters(), &array->buffers()})
      for (const auto& stack : *stacks) visit(*array, stack, slot++);
}

/// Visits a lane's own tensors by slot.
template <typename Visit>
void each_tensor(const std::vector<lanes::ArrayBase*>& arrays, std::int64_t lane, const Visit& visit) {
  std::size_t slot = 0;
  for (const auto* array : arrays)
    for (const bool is_parameter : {true, false})
      for (const auto& tensor : is_parameter ? array->lane_parameters(lane) : array->lane_buffers(lane)) visit(tensor, is_parameter, slot++);
}

/// Puts a lane back as it was at the end of the scope: its values, and which parameters require gradients.
class LaneAsBefore {
 public:
  LaneAsBefore(const std::vector<lanes::ArrayBase*>& arrays, std::int64_t lane, const std::vector<bool>& is_shared, std::vector<at::Tensor> rows)
      : arrays_(arrays), lane_(lane), rows_(std::move(rows)), values_(rows_.size()), trains_(rows_.size()) {
    for (auto* array : arrays_) array->look_at_shared(lane_);
    each_tensor(arrays_, lane_, [&](const at::Tensor& tensor, bool, std::size_t slot) {
      trains_[slot] = tensor.requires_grad();
      // A lane sees what is shared through a lazy copy of its own, which becomes a copy where it is written.
      if (is_shared[slot]) rows_[slot] = tensor.detach();
      else values_[slot] = rows_[slot].clone();
    });
  }
  ~LaneAsBefore() {
    const at::NoGradGuard no_grad;
    for (std::size_t slot = 0; slot < rows_.size(); ++slot)
      if (values_[slot].defined()) rows_[slot].copy_(values_[slot]);
    for (auto* array : arrays_) array->look_at_shared(lane_);
    each_tensor(arrays_, lane_, [&](const at::Tensor& tensor, bool is_parameter, std::size_t slot) {
      if (is_parameter && tensor.requires_grad() != trains_[slot]) tensor.set_requires_grad(trains_[slot]);
    });
  }
  LaneAsBefore(const LaneAsBefore&) = delete;
  LaneAsBefore& operator=(const LaneAsBefore&) = delete;
  const std::vector<at::Tensor>& rows() const { return rows_; }

 private:
  const std::vector<lanes::ArrayBase*>& arrays_;
  std::int64_t lane_;
  std::vector<at::Tensor> rows_, values_;
  std::vector<bool> trains_;
};

}  // namespace

std::vector<at::Tensor> Slots::state(std::int64_t first, std::int64_t width) const {
  std::vector<at::Tensor> rows;
  each_stack(arrays_, [&](const auto&, const lanes::Stacked& stack, std::int64_t) {
    const auto tensor = stack.tensor.detach();
    rows.push_back(stack.shared.defined() ? stack.shared : width == 1 ? tensor.select(0, first) : tensor.narrow(0, first, width));
  });
  return rows;
}

std::vector<bool> Slots::shared() const {
  std::vector<bool> all;
  each_stack(arrays_, [&](const auto&, const lanes::Stacked& stack, std::int64_t) { all.push_back(stack.shared.defined()); });
  return all;
}

bool Slots::unshare(const std::vector<std::int64_t>& slots) const {
  bool any = false;
  each_stack(arrays_, [&](lanes::ArrayBase& array, const lanes::Stacked& stack, std::int64_t slot) {
    if (!stack.shared.defined() || std::find(slots.begin(), slots.end(), slot) == slots.end()) return;
    array.unshare(stack);
    any = true;
  });
  return any;
}

std::vector<std::string> Slots::names() const {
  std::vector<std::string> names;
  each_stack(arrays_, [&](const auto&, const lanes::Stacked& stack, std::int64_t) { names.push_back('"' + stack.name + '"'); });
  return names;
}

std::vector<at::Generator> Slots::generators(std::int64_t first, std::int64_t width) const {
  std::vector<at::Generator> own;
  for (std::int64_t lane = first; lane < first + width; ++lane) own.push_back(arrays_[0]->generator(lane));
  return own;
}

std::vector<at::Generator> Slots::generator_copies(std::int64_t first, std::int64_t width) const {
  auto own = generators(first, width);
  for (auto& generator : own) generator = generator.clone();
  return own;
}

void Slots::untouched(std::int64_t lane, const std::function<void(const std::vector<at::Tensor>& rows)>& body) const {
  const auto is_shared = shared();
  const LaneAsBefore as_before(arrays_, lane, is_shared, state(lane, 1));
  const auto& rows = as_before.rows();
  struct Rebound {
    const std::vector<lanes::ArrayBase*>& arrays;
    std::int64_t lane;
    ~Rebound() {
      try {
        names();
      } catch (const Error&) {  // a tensor of another type or shape, which `names` tells where nothing else failed
      }
    }
    std::string names() const {
      std::string text;
      for (auto* array : arrays)
        for (const auto& name : array->restore_rows(lane)) text += (text.empty() ? "\"" : ", \"") + name + '"';
      return text;
    }
  } rebound{arrays_, lane};
  body(rows);
  auto names = rebound.names();
  each_tensor(arrays_, lane, [&](const at::Tensor& tensor, bool, std::size_t slot) {
    if (is_shared[slot] && !tensor.is_alias_of(rows[slot]) && names.empty()) names = this->names()[slot];
  });
  if (!names.empty())
    throw Unsupported(base::message("train::record: expected a step that writes its buffers in place, got ", names, " bound to other memory in lane ", lane));
}

std::vector<at::Tensor> inputs_of_group(std::span<const Input> inputs, std::int64_t first, std::int64_t width) {
  std::vector<at::Tensor> own;
  for (const auto& input : inputs)
    own.push_back(!input.per_lane ? input.tensor : width == 1 ? input.tensor.select(0, first) : input.tensor.narrow(0, first, width));
  return own;
}

Input bindable(const Input& input) {
  const auto tensor = input.tensor.detach();
  if (!input.per_lane) return {tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous(), false};
  const bool dense_rows = tensor.size(0) > 0 && tensor.select(0, 0).is_non_overlapping_and_dense() &&
                          (tensor.size(0) == 1 || tensor.stride(0) == tensor.select(0, 0).numel());
  return {dense_rows ? tensor : tensor.contiguous(), true};
}

Batch bindable(std::span<const Input> inputs) {
  Batch batch;
  for (const auto& input : inputs)
    if (input.tensor.layout() != c10::kStrided) throw Unsupported(base::message("train::record: expected dense inputs, got one of layout ", input.tensor.layout()));
  for (const auto& input : inputs) batch.push_back(bindable(input));
  return batch;
}

at::Tensor twin(const at::Tensor& tensor) {
  auto copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

std::vector<at::Tensor> twins(std::vector<at::Tensor> tensors) {
  for (auto& tensor : tensors) tensor = twin(tensor);
  return tensors;
}

}  // namespace hfta::train
