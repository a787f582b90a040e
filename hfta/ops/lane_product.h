#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hfta/ops/product.h"
#include "hfta/ops/unpacked_product_kernel.h"

// What our products' kernels take: a matrix product per lane, or a batch of them, of float or double on the CPU.

namespace hfta::ops {

/// Of factors `[..., n, k]` and `[..., k, m]`.
inline ProductShape product_shape(const at::Tensor& left, const at::Tensor& right) { return {left.size(-2), left.size(-1), right.size(-1)}; }

/// A product's arguments, lanes first where they differ: factors `[lanes, n, k]` and `[lanes, k, m]`, or of a batch of products in each lane
/// `[lanes, b, n, k]` and `[lanes, b, k, m]`, each with neighbours next to each other along an axis; bias `[lanes, m]`; gate as the result, contiguous.
/// What all lanes share has no lane axis.
struct LaneProduct {
  at::Tensor left, right;
  std::optional<at::Tensor> bias, gate;
  bool relu;
  std::vector<std::int64_t> products;  ///< `[lanes]` or `[lanes, b]`.

  /// Calls the operator `name(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int[] products) -> Tensor [products, n, m]`.
  LaneTensor call(const char* name) const;
};

/// Of arguments that `product` takes. Nothing where the kernels do not take them.
std::optional<LaneProduct> lane_product(const LaneTensor& left, const LaneTensor& right, const std::optional<ProductAddend>& addend,
                                        const ProductActivation& activation, std::int64_t lanes);

}  // namespace hfta::ops
