#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hfta/lanes/layout.h"

namespace hfta::lanes {

/// Where the lanes' tensors of one name lie: each in a row of its own, or all in one value that is stored once.
///
/// A lane looks at a shared value through a lazy copy (LibTorch's copy-on-write memory): it costs nothing until it is written.
struct Leaf {
  at::Tensor stack;   ///< `[lanes, ...]`: a row per lane, or the shared value repeated by a stride of 0.
  at::Tensor shared;  ///< `[...]`, never written; undefined where each lane has a row.
};

/// Rows of zeros for tensors shaped like `single`.
Leaf leaf_of_rows(const at::Tensor& single, std::int64_t lanes, at::TensorOptions options);
/// A leaf whose lanes all look at this value, which is taken and not copied.
Leaf leaf_of_one(at::Tensor shared, std::int64_t lanes);
/// A copy of the value in memory of its own, with a row's strides.
at::Tensor value_to_share(const at::Tensor& single);

/// Makes a lane's tensor of a leaf, and further objects over its memory, look at where the leaf has it.
void place(const ModuleTensors& lane, bool parameter, std::size_t index, const at::Tensor& memory);
/// Where lane `lane` of a leaf looks: its row, or a lazy copy of what is shared.
at::Tensor memory_of(const at::Tensor& stack, const at::Tensor& shared, std::int64_t lane);

/// Whether two tensors of one shape and type hold the same bits (not numbers: NaN equals itself).
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace hfta::lanes
