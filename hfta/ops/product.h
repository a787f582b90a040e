#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Ways to compute a fused matrix product.
enum class ProductLowering {
  Wide,     ///< Left factor shared: one product with lanes x columns; the result's lane axis is before its columns.
  Folded,   ///< Right factor shared: one product with lanes x rows; the result's lane axis is before its rows.
  Batched,  ///< One batched product, lanes first.
  Looped,   ///< One product per lane, written into its row of the result.
  Unpacked, ///< Our kernel for few rows (`unpacked_product.h`), lanes first. CPU only.
  Split,    ///< By the processor's matrix unit, floats in three parts (`split_product.h`), lanes first. CPU only.
};
/// Every lowering, best guess first: the chooser times them, the tests compare them.
inline constexpr std::array kProductLowerings{ProductLowering::Wide, ProductLowering::Folded, ProductLowering::Batched,
                                              ProductLowering::Looped, ProductLowering::Unpacked, ProductLowering::Split};

std::string_view name_of(ProductLowering lowering);
/// Whether it is a kernel of ours (`lane_product.h`), of the CPU alone.
constexpr bool is_our_kernel(ProductLowering lowering) { return lowering == ProductLowering::Unpacked || lowering == ProductLowering::Split; }

/// What is added to a product: `beta * tensor + alpha * product`; `tensor` broadcasts to the lane's result.
struct ProductAddend {
  LaneTensor tensor;
  at::Scalar beta = 1, alpha = 1;
};

/// What becomes of a product's numbers: a ReLU behind it, or the gradient that goes on through one.
struct ProductActivation {
  bool relu = false;               ///< Negative ones become zero.
  std::optional<LaneTensor> gate;  ///< A ReLU's result, shaped as the lane's product: zero where it is not positive.
};

/// Each lane's `left @ right`, of matrices `[n, k] [k, m]` or of batches of them `[b, n, k] [b, k, m]`, plus the addend,
/// activated. Nothing where the lowering does not take these arguments.
std::optional<LaneTensor> product(const LaneTensor& left, const LaneTensor& right, std::int64_t lanes, ProductLowering lowering,
                                  const std::optional<ProductAddend>& addend = std::nullopt, const ProductActivation& activation = {});

}  // namespace hfta::ops
