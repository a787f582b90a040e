#include "hfta/lanes/rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <vector>

#include "hfta/base/memory.h"

namespace hfta::lanes {

std::vector<std::int64_t> dense_strides(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.strides().vec();
  std::vector<std::int64_t> strides(tensor.dim(), 1);
  for (std::int64_t d = tensor.dim() - 2; d >= 0; --d) strides[d] = strides[d + 1] * std::max<std::int64_t>(tensor.size(d + 1), 1);
  return strides;
}

at::Tensor allocate_rows(const at::Tensor& single, std::int64_t lanes, at::TensorOptions options) {
  const c10::InferenceMode ordinary(false);
  const auto aligned = kRowAlignment / static_cast<std::int64_t>(options.dtype().itemsize());
  const auto lane_stride = (std::max<std::int64_t>(single.numel(), 1) + aligned - 1) / aligned * aligned;
  auto sizes = single.sizes().vec(), strides = dense_strides(single);
  sizes.insert(sizes.begin(), lanes);
  strides.insert(strides.begin(), lane_stride);
  auto stack = at::zeros({lanes * lane_stride}, options);
  if (stack.is_cpu()) base::prefer_large_pages(stack.mutable_data_ptr(), stack.nbytes());
  stack.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);  // no view: the stack may become a leaf whose rows are written in place
  return stack;
}

at::Tensor row(const at::Tensor& stack, std::int64_t lane) {
  const at::NoGradGuard no_grad;
  return stack.detach().select(0, lane);
}

bool is_row(const at::Tensor& tensor, const at::Tensor& stack, std::int64_t lane) {
  return tensor.is_alias_of(stack) && tensor.storage_offset() == stack.storage_offset() + lane * stack.stride(0) && tensor.sizes() == stack.sizes().slice(1) &&
         tensor.strides() == stack.strides().slice(1) && tensor.scalar_type() == stack.scalar_type();
}

void look_at(const at::Tensor& tensor, const at::Tensor& memory) {
  const at::NoGradGuard no_grad;
  tensor.set_data(memory);
}

void copy_rows(const at::Tensor& source, const at::Tensor& target, std::span<const std::int64_t> from) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i] >= 0) row(target, static_cast<std::int64_t>(i)).copy_(row(source, from[i]));
}

}  // namespace hfta::lanes
