#include "hfta/lanes/leaf.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_lazy_clone.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <utility>

#include "hfta/lanes/rows.h"

namespace hfta::lanes {

Leaf leaf_of_rows(const at::Tensor& single, std::int64_t lanes, at::TensorOptions options) {
  return {allocate_rows(single, lanes, options.requires_grad(false)), at::Tensor()};
}

Leaf leaf_of_one(at::Tensor shared, std::int64_t lanes) {
  const c10::InferenceMode ordinary(false);
  auto sizes = shared.sizes().vec(), strides = shared.strides().vec();
  sizes.insert(sizes.begin(), lanes);
  strides.insert(strides.begin(), 0);
  auto stack = at::_lazy_clone(shared);
  stack.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return {std::move(stack), std::move(shared)};
}

at::Tensor value_to_share(const at::Tensor& single) {
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  auto value = at::empty_strided(single.sizes(), dense_strides(single), single.options().requires_grad(false));
  return value.copy_(single.detach());
}

void place(const ModuleTensors& lane, bool parameter, std::size_t index, const at::Tensor& memory) {
  const auto& tensor = lane.at(parameter, index);
  look_at(tensor, memory);
  for (const auto& alias : lane.aliases)
    if (alias.of_parameter == parameter && alias.index == index) look_at(alias.tensor, tensor.detach());
}

at::Tensor memory_of(const at::Tensor& stack, const at::Tensor& shared, std::int64_t lane) {
  const c10::InferenceMode ordinary(false);
  return shared.defined() ? at::_lazy_clone(shared) : row(stack, lane);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!a.is_cpu() || !b.is_cpu() || a.strides() != b.strides() || !a.is_non_overlapping_and_dense()) return at::equal(a, b);
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace hfta::lanes
