#pragma once

#include <cstdint>

#include "hfta/optim/kernels.h"

namespace hfta::optim {

/// Whether `wide_adam_row` can be used here: LibTorch computes with AVX-512.
bool has_wide_adam();

/// Whether it gives LibTorch's bits: LibTorch's square root is the one that is computed in registers, which is tried once on every significand.
bool wide_adam_is_libtorch_s();

/// Adam on elements of one row, in one pass: all that belongs to an element stays in registers. Roots are within an ulp.
/// @returns how many were updated: it stops in front of a second moment that is huge, infinite or no number.
std::int64_t wide_adam_row(float* parameter, const float* gradient, float* first, float* second, std::int64_t size, const LaneNumbers& lane);

}  // namespace hfta::optim
