#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace hfta::lanes {

/// Rows start on this many bytes, so that a lane's kernels round as those of a model of its own.
inline constexpr std::int64_t kRowAlignment = 64;

/// Strides of a dense tensor like this one: its own where it fills its memory, else plain ones.
std::vector<std::int64_t> dense_strides(const at::Tensor& tensor);
/// A stack `[lanes, ...]` of zeros for tensors shaped like `single`, with its strides within a row, of the options' type and device.
at::Tensor allocate_rows(const at::Tensor& single, std::int64_t lanes, at::TensorOptions options);
/// Lane `lane`'s row of a stack: a view without gradient history.
at::Tensor row(const at::Tensor& stack, std::int64_t lane);
/// Whether the tensor is that row: its memory and its view of it.
bool is_row(const at::Tensor& tensor, const at::Tensor& stack, std::int64_t lane);
/// Makes `tensor` (the object, wherever it is held) look at `memory`; it stays a leaf that requires gradients or does not.
void look_at(const at::Tensor& tensor, const at::Tensor& memory);
/// Copies row `from[i]` of one stack into row `i` of another; entries below zero are left out.
void copy_rows(const at::Tensor& source, const at::Tensor& target, std::span<const std::int64_t> from);

}  // namespace hfta::lanes
