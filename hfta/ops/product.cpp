#include "hfta/ops/product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>

#include "hfta/ops/layout.h"
#include "hfta/ops/split_product.h"
#include "hfta/ops/unpacked_product.h"

namespace hfta::ops {
namespace {

/// One LibTorch product of matrices or batches, with an addend or none.
at::Tensor multiply(const at::Tensor& left, const at::Tensor& right, const at::Tensor& added, const std::optional<ProductAddend>& addend) {
  const bool batches = left.dim() == 3;
  if (!addend) return batches ? at::bmm(left, right) : at::mm(left, right);
  return batches ? at::baddbmm(added, left, right, addend->beta, addend->alpha)
                 : at::addmm(added, left, right, addend->beta, addend->alpha);
}

void multiply_into(at::Tensor out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& added,
                   const std::optional<ProductAddend>& addend) {
  const bool batches = left.dim() == 3;
  if (!addend) {
    batches ? at::bmm_out(out, left, right) : at::mm_out(out, left, right);
  } else {
    batches ? at::baddbmm_out(out, added, left, right, addend->beta, addend->alpha)
            : at::addmm_out(out, added, left, right, addend->beta, addend->alpha);
  }
}

/// `[lanes or 1, ...]` with as many axes per lane as the result, so that it broadcasts to the results lanes first.
at::Tensor addend_lanes_first(const LaneTensor& added, std::int64_t dim) {
  auto tensor = added.axis ? added.tensor.movedim(*added.axis, 0) : added.tensor.unsqueeze(0);
  while (tensor.dim() < dim + 1) tensor = tensor.unsqueeze(1);
  return tensor;
}

/// The addend as seen by one product whose lanes lie before axis `position` of the lane's result.
at::Tensor folded_addend(const LaneTensor& added, std::int64_t lanes, std::int64_t position, std::int64_t dim, std::int64_t size) {
  const bool vector = added.lane_dim() == 1 && position == dim - 1;
  auto tensor = addend_lanes_first(added, dim);
  if (added.is_shared() && tensor.size(position + 1) == 1) return tensor.squeeze(0);
  auto sizes = tensor.sizes().vec();
  sizes[0] = lanes;
  sizes[static_cast<std::size_t>(position) + 1] = size;
  auto folded = merge_axes(tensor.expand(sizes).movedim(0, position), position);
  return vector ? folded.view({-1}) : folded;
}

std::optional<LaneTensor> wide(const LaneTensor& left, const LaneTensor& right, std::int64_t lanes, const std::optional<ProductAddend>& addend) {
  if (!left.is_shared() || right.is_shared()) return std::nullopt;
  const auto dim = left.lane_dim();
  const auto columns = fold_lanes(right, lanes, dim - 1);
  const auto added = addend ? folded_addend(addend->tensor, lanes, dim - 1, dim, columns.size(-1) / lanes) : at::Tensor();
  return unfold_lanes(multiply(left.tensor, columns, added, addend), lanes, dim - 1);
}

std::optional<LaneTensor> folded(const LaneTensor& left, const LaneTensor& right, std::int64_t lanes,
                                 const std::optional<ProductAddend>& addend) {
  if (left.is_shared() || !right.is_shared()) return std::nullopt;
  const auto dim = left.lane_dim();
  const auto rows = fold_lanes(left, lanes, dim - 2);
  at::Tensor added;
  if (addend && addend->tensor.is_shared() && addend->tensor.lane_dim() < 2) {
    added = addend->tensor.tensor;  // broadcasts over the rows of all lanes as it is
  } else if (addend) {
    added = folded_addend(addend->tensor, lanes, dim - 2, dim, rows.size(-2) / lanes);
  }
  return unfold_lanes(multiply(rows, right.tensor, added, addend), lanes, dim - 2);
}

std::optional<LaneTensor> batched(const LaneTensor& left, const LaneTensor& right, std::int64_t lanes,
                                  const std::optional<ProductAddend>& addend) {
  const auto dim = left.lane_dim();
  if (dim == 2) {
    const auto added = addend ? addend_lanes_first(addend->tensor, dim) : at::Tensor();
    return LaneTensor{multiply(lanes_first(left, lanes), lanes_first(right, lanes), added, addend), 0};
  }
  const auto size = left.axis ? left.tensor.size(*left.axis == 0 ? 1 : 0) : left.tensor.size(0);
  const auto added = addend ? folded_addend(addend->tensor, lanes, 0, dim, size) : at::Tensor();
  return unfold_lanes(multiply(fold_lanes(left, lanes, 0), fold_lanes(right, lanes, 0), added, addend), lanes, 0);
}

std::optional<LaneTensor> looped(const LaneTensor& left, const LaneTensor& right, std::int64_t lanes,
                                 const std::optional<ProductAddend>& addend) {
  const auto added = [&](std::int64_t lane) { return addend ? lane_of(addend->tensor, lane) : at::Tensor(); };
  const auto left_0 = lane_of(left, 0), right_0 = lane_of(right, 0);
  if (lanes == 1) return LaneTensor{multiply(left_0, right_0, added(0), addend).unsqueeze(0), 0};
  auto sizes = left_0.sizes().vec();
  sizes.back() = right_0.size(-1);
  sizes.insert(sizes.begin(), lanes);
  const auto result = at::empty(sizes, left.tensor.options());
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    multiply_into(result.select(0, lane), lane_of(left, lane), lane_of(right, lane), added(lane), addend);
  }
  return LaneTensor{result, 0};
}

std::optional<LaneTensor> by_libtorch(const LaneTensor& left, const LaneTensor& right, std::int64_t lanes, ProductLowering lowering,
                                      const std::optional<ProductAddend>& addend) {
  switch (lowering) {
    case ProductLowering::Wide: return wide(left, right, lanes, addend);
    case ProductLowering::Folded: return folded(left, right, lanes, addend);
    case ProductLowering::Batched: return batched(left, right, lanes, addend);
    case ProductLowering::Looped: return looped(left, right, lanes, addend);
    case ProductLowering::Unpacked:
    case ProductLowering::Split: break;
  }
  return std::nullopt;
}

at::Tensor activated(const LaneTensor& product, const ProductActivation& activation, std::int64_t lanes) {
  const auto tensor = activation.relu ? at::relu(product.tensor) : product.tensor;
  if (!activation.gate) return tensor;
  const auto gate = lanes_first(*activation.gate, lanes);
  return at::threshold_backward(tensor, product.axis ? gate.movedim(0, *product.axis) : gate, 0);
}

}  // namespace

std::string_view name_of(ProductLowering lowering) {
  switch (lowering) {
    case ProductLowering::Wide: return "wide";
    case ProductLowering::Folded: return "folded";
    case ProductLowering::Batched: return "batched";
    case ProductLowering::Looped: return "looped";
    case ProductLowering::Unpacked: return "unpacked";
    case ProductLowering::Split: return "split";
  }
  return "";
}

std::optional<LaneTensor> product(const LaneTensor& left, const LaneTensor& right, std::int64_t lanes, ProductLowering lowering,
                                  const std::optional<ProductAddend>& addend, const ProductActivation& activation) {
  const auto dim = left.lane_dim();
  if ((dim != 2 && dim != 3) || right.lane_dim() != dim) return std::nullopt;
  if (addend && addend->tensor.lane_dim() > dim) return std::nullopt;
  if (is_our_kernel(lowering)) {
    const auto arguments = lane_product(left, right, addend, activation, lanes);
    if (!arguments) return std::nullopt;
    return lowering == ProductLowering::Split ? split_product(*arguments) : unpacked_product(*arguments);
  }
  auto value = by_libtorch(left, right, lanes, lowering, addend);
  if (value) value->tensor = activated(*value, activation, lanes);
  return value;
}

}  // namespace hfta::ops
