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

BatchOrder batch_order(const LaneTensor& value) {
  return value.axis == 1 && mergeable(value.tensor.sizes(), value.tensor.strides(), 0) ? BatchOrder::LanesInner : BatchOrder::LanesOuter;
}

at::Tensor fold_batch(const LaneTensor& value, std::int64_t lanes, BatchOrder order) {
  return order == BatchOrder::LanesInner ? merge_axes(lanes_at(value, lanes, 1), 0) : fold_lanes(value, lanes, 0);
}

LaneTensor unfold_batch(const at::Tensor& folded, std::int64_t lanes, BatchOrder order) {
  if (order == BatchOrder::LanesOuter) return unfold_lanes(folded, lanes, 0);
  return {folded.unflatten(0, {folded.size(0) / lanes, lanes}), 1};
}

}  // namespace hfta::ops
