#include "hfta/program/view.h"

#include <c10/core/DispatchKeySet.h>

namespace hfta::program {

at::Tensor tensor_on(const c10::Storage& storage, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, std::int64_t offset) {
  const auto key = c10::computeDispatchKey(dtype, c10::kStrided, storage.device());
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor tensor_on(const c10::Storage& storage, const Value& value, std::int64_t begin_bytes) {
  const auto itemsize = static_cast<std::int64_t>(c10::elementSize(value.dtype));
  auto tensor = tensor_on(storage, value.dtype, value.sizes, value.strides, (begin_bytes + value.offset_bytes) / itemsize);
  if (value.conj) tensor._set_conj(true);
  if (value.neg) tensor._set_neg(true);
  if (value.wrapped_number) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace hfta::program
