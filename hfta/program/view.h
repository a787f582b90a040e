#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "hfta/program/program.h"

namespace hfta::program {

/// A tensor on this memory, made without any operator (nothing is seen by an interceptor).
at::Tensor tensor_on(const c10::Storage& storage, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, std::int64_t offset);

/// A tensor on this memory with the value's view of it, conj and neg bits and wrapped numbers included; the memory starts `begin_bytes`
/// into the storage.
at::Tensor tensor_on(const c10::Storage& storage, const Value& value, std::int64_t begin_bytes = 0);

}  // namespace hfta::program
