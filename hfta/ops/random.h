#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "hfta/ops/rule.h"

namespace hfta::ops {

/// Ways to draw the lanes' Bernoulli masks; all give the numbers that each lane alone would draw.
enum class BernoulliLowering {
  Together,  ///< One operator for all lanes; on the CPU its own kernel where that draws LibTorch's numbers.
  Looped,    ///< LibTorch's operator once per lane.
};
inline constexpr std::array kBernoulliLowerings{BernoulliLowering::Together, BernoulliLowering::Looped};

/// Fills lane i of `destination` with ones of probability `probability[i]`, else zeros, from `generators[i]`, in the order of
/// memory where the slice is dense, as LibTorch draws, else in row-major order.
void bernoulli_(const LaneTensor& destination, const std::vector<double>& probability, const std::vector<at::Generator>& generators,
                BernoulliLowering lowering);

}  // namespace hfta::ops
