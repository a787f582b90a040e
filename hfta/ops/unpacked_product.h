#pragma once

#include "hfta/ops/lane_product.h"

namespace hfta::ops {

/// Each lane's product by our kernel for few rows; nothing where there are many.
std::optional<LaneTensor> unpacked_product(const LaneProduct& product);

}  // namespace hfta::ops
