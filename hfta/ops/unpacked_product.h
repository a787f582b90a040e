#pragma once

#include "hfta/ops/product.h"

namespace hfta::ops {

/// Each lane's `left @ right (+ bias)` of matrices `[n, k] [k, m]` and a vector `[m]`, activated, by our kernel for few rows. Float or double on the CPU,
/// each right factor with neighbours next to each other along an axis; else nothing.
std::optional<LaneTensor> unpacked_product(const LaneTensor& left, const LaneTensor& right, const std::optional<LaneTensor>& bias, const ProductActivation& activation,
                                           std::int64_t lanes);

}  // namespace hfta::ops
