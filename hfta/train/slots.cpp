#include "hfta/train/slots.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include "hfta/base/error.h"

namespace hfta::train {

std::vector<at::Tensor> Slots::state(std::int64_t first, std::int64_t width) const {
  std::vector<at::Tensor> rows;
  for (const auto* array : arrays_)
    for (const auto* stacks : {&array->parameters(), &array->buffers()})
      for (const auto& stack : *stacks) {
        const auto tensor = stack.tensor.detach();
        rows.push_back(width == 1 ? tensor.select(0, first) : tensor.narrow(0, first, width));
      }
  return rows;
}

std::vector<std::string> Slots::names() const {
  std::vector<std::string> names;
  for (const auto* array : arrays_)
    for (const auto* stacks : {&array->parameters(), &array->buffers()})
      for (const auto& stack : *stacks) names.push_back('"' + stack.name + '"');
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
  const auto rows = state(lane, 1);
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
    const std::vector<lanes::ArrayBase*>& arrays;
    std::int64_t lane;
    ~Rebound() { names(); }
    std::string names() const {
      std::string text;
      for (auto* array : arrays)
        for (const auto& name : array->restore_rows(lane)) text += (text.empty() ? "\"" : ", \"") + name + '"';
      return text;
    }
  } rebound{arrays_, lane};
  body(rows);
  const auto names = rebound.names();
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
