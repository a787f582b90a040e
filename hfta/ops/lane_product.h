#pragma once

#include <cstdint>
#include <optional>

#include "hfta/ops/product.h"
#include "hfta/ops/unpacked_product_kernel.h"

// What our products' kernels take: one matrix product per lane of float or double on the CPU.

namespace hfta::ops {

/// Of factors `[lanes or none, n, k]` and `[lanes or none, k, m]`.
inline ProductShape product_shape(const at::Tensor& left, const at::Tensor& right) { return {left.size(-2), left.size(-1), right.size(-1)}; }

/// A product's arguments, lanes first: factors `[lanes or none, n, k]` and `[lanes or none, k, m]`, each with neighbours next to each other along
/// an axis, bias `[lanes or none, m]` and gate `[lanes or none, n, m]`, contiguous.
struct LaneProduct {
  at::Tensor left, right;
  std::optional<at::Tensor> bias, gate;
  bool relu;
  std::int64_t lanes;

  /// Calls the operator `name(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes) -> Tensor [lanes, n, m]`.
  LaneTensor call(const char* name) const;
};

/// Nothing where the kernels do not take these arguments.
std::optional<LaneProduct> lane_product(const LaneTensor& left, const LaneTensor& right, const std::optional<ProductAddend>& addend,
                                        const ProductActivation& activation, std::int64_t lanes);

}  // namespace hfta::ops
