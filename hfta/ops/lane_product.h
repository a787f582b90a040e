#pragma once

#include <cstdint>
#include <optional>

#include "hfta/ops/product.h"
#include "hfta/ops/unpacked_product_kernel.h"

// What is common to our products' kernels: one matrix product per lane of float or double on the CPU.

namespace hfta::ops {

/// Multiplications below which a thread of its own costs more than it saves.
constexpr std::int64_t kMultiplicationsPerThread = 1 << 20;

/// A product's arguments, lanes first: factors `[lanes or none, n, k]` and `[lanes or none, k, m]`, each with neighbours next to each other along
/// an axis, bias `[lanes or none, m]` and gate `[lanes or none, n, m]`, contiguous.
struct LaneProduct {
  at::Tensor left, right;
  std::optional<at::Tensor> bias, gate;
  bool relu;
  std::int64_t lanes;

  ProductShape shape() const { return {left.size(-2), left.size(-1), right.size(-1)}; }
  /// Calls `hfta::<name>(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes) -> Tensor [lanes, n, m]`.
  LaneTensor call(const char* name) const;
};

/// Nothing where the kernels do not take these arguments.
std::optional<LaneProduct> lane_product(const LaneTensor& left, const LaneTensor& right, const std::optional<ProductAddend>& addend,
                                        const ProductActivation& activation, std::int64_t lanes);

/// A factor `[lanes or none, rows, columns]`.
struct Factor {
  const at::Tensor& tensor;
  bool per_lane() const { return tensor.dim() == 3; }
  std::int64_t size(int axis) const { return tensor.size(axis - 2); }
  template <typename T>
  Matrix<T> of(std::int64_t lane) const {
    return {lane_data<T>(tensor, 2, lane), tensor.stride(-2), tensor.stride(-1)};
  }
};

/// What a lane's sums begin and end with.
template <typename T>
Ends<T> ends_of(const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& gate, bool relu, std::int64_t lane) {
  return {bias ? lane_data<T>(*bias, 1, lane) : nullptr, gate ? lane_data<T>(*gate, 2, lane) : nullptr, relu};
}

}  // namespace hfta::ops
