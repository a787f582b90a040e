#include "hfta/ops/layout.h"

#include <ATen/ExpandUtils.h>

namespace hfta::ops {
namespace {

bool mergeable(at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t position) {
  const auto outer = static_cast<std::size_t>(position), inner = outer + 1;
  return sizes[outer] == 1 || sizes[inner] == 1 || strides[outer] == strides[inner] * sizes[inner];
}

}  // namespace

at::Tensor lanes_at(const LaneTensor& value, std::int64_t lanes, std::int64_t position) {
  if (value.axis) return value.tensor.movedim(*value.axis, position);
  auto sizes = value.tensor.sizes().vec();
  sizes.insert(sizes.begin() + position, lanes);
  return value.tensor.unsqueeze(position).expand(sizes);
}

at::Tensor merge_axes(const at::Tensor& tensor, std::int64_t position) {
  if (!mergeable(tensor.sizes(), tensor.strides(), position)) {
    // Rows padded to 64 bytes: closing the gaps is enough, and keeps a transposed weight transposed.
    const auto dense = at::infer_dense_strides(tensor.sizes(), tensor.strides());
    if (mergeable(tensor.sizes(), dense, position)) return tensor.clone().flatten(position, position + 1);
  }
  return tensor.flatten(position, position + 1);
}

at::Tensor fold_lanes(const LaneTensor& value, std::int64_t lanes, std::int64_t position) {
  return merge_axes(lanes_at(value, lanes, position), position);
}

bool folds_as_view(const LaneTensor& value, std::int64_t position) {
  if (value.is_shared()) return false;
  const auto moved = value.tensor.movedim(*value.axis, position);
  return mergeable(moved.sizes(), moved.strides(), position);
}

LaneTensor unfold_lanes(const at::Tensor& folded, std::int64_t lanes, std::int64_t position) {
  return {folded.unflatten(position, {lanes, folded.size(position) / lanes}), position};
}

}  // namespace hfta::ops
