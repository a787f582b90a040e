#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// A view with the lane axis at `position` of the physical tensor; a shared value is expanded (stride 0).
at::Tensor lanes_at(const LaneTensor& value, std::int64_t lanes, std::int64_t position);

/// Axes `position` and `position + 1` as one: a view where strides allow, else a copy that keeps the order of the other axes in memory.
at::Tensor merge_axes(const at::Tensor& tensor, std::int64_t position);

/// The lane axis merged into the lane value's axis `position`, lanes outermost: `[.., lanes * size, ..]`.
at::Tensor fold_lanes(const LaneTensor& value, std::int64_t lanes, std::int64_t position);

/// True where `fold_lanes` makes a view.
bool folds_as_view(const LaneTensor& value, std::int64_t position);

/// The way back from `fold_lanes`: a view whose lane axis is `position`.
LaneTensor unfold_lanes(const at::Tensor& folded, std::int64_t lanes, std::int64_t position);

/// Where the lanes go when they are folded into a lane value's first axis, its batch.
enum class BatchOrder {
  LanesOuter,  ///< `[lanes * N, ...]`
  LanesInner,  ///< `[N * lanes, ...]`
};
/// The order that needs no copy of `value` where there is one.
BatchOrder batch_order(const LaneTensor& value);
/// The lane axis merged into the batch.
at::Tensor fold_batch(const LaneTensor& value, std::int64_t lanes, BatchOrder order);
/// The way back from `fold_batch`, a view.
LaneTensor unfold_batch(const at::Tensor& folded, std::int64_t lanes, BatchOrder order);

}  // namespace hfta::ops
