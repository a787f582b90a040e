#pragma once

#include "hfta/ops/lane_product.h"

namespace hfta::ops {

/// Each lane's product by the processor's matrix unit, each float in three parts; nothing where there is no such unit, for doubles, or where a
/// product is so small that splitting costs more. A lane whose numbers cannot be split is multiplied by `unpacked_product`.
std::optional<LaneTensor> split_product(const LaneProduct& product);

}  // namespace hfta::ops
