#pragma once

#include <cstdint>
#include <optional>

#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

/// Each lane's `left @ right (+ bias)` of matrices `[n, k] [k, m]` and a vector `[m]`, by our kernel for few rows. Float or double on the CPU,
/// each right factor with neighbours next to each other along an axis; else nothing.
std::optional<LaneTensor> unpacked_product(const LaneTensor& left, const LaneTensor& right, const std::optional<LaneTensor>& bias, std::int64_t lanes);

}  // namespace hfta::ops
