#pragma once

#include "hfta/ops/rectified_pool_kernel.h"
#include "hfta/ops/wide_vectors.h"

namespace hfta::ops {

/// The greatest of each window's numbers after a ReLU as `aten::relu` has it (NaN and -0 stay), and which it was: 0 to 3, or `kNothing` where
/// ReLU is shut. As `aten::max_pool2d` a NaN wins, and the first of equal numbers. @param Places whole numbers as wide as `Values`.
template <typename Values, typename Places>
HFTA_INLINE void take_greatest(const Values (&numbers)[4], Values& best, Places& index) {
  const Values zero{};
  best = zero > numbers[0] ? zero : numbers[0];
  index = Places{};
  for (int i = 1; i < 4; ++i) {
    const Values value = zero > numbers[i] ? zero : numbers[i];
    const auto better = (value > best) | (value != value);
    best = better ? value : best;
    index = better ? Places{} + i : index;
  }
  index = best <= zero ? Places{} + kNothing : index;
}

}  // namespace hfta::ops
