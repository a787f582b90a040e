#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hfta::ops {

/// The name of our operator with the schema and the bits of `aten::max_pool2d_with_indices`: CPU, float32 and float64, fast on
/// contiguous images. Its gradient is `kMaxPool2dBackward`. Both have overloads that write into given memory.
inline constexpr const char* kMaxPool2d = "hfta::max_pool2d_with_indices";
inline constexpr const char* kMaxPool2dBackward = "hfta::max_pool2d_with_indices_backward";

/// True where the kernels take this tensor.
bool max_pool2d_takes(const at::Tensor& input);

}  // namespace hfta::ops
