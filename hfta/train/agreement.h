#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hfta::train {

/// How far a tensor is from what it should be.
struct Disagreement {
  std::size_t index;
  double largest, scale;
};

/// The largest difference of each tensor, over the numbers that both hold.
std::vector<double> differences(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected);

/// The first tensor that differs by more than rounding does, and by more than its entry of `allowed` where there are any; each is judged at its own scale and at that of them all, since a gradient
/// that is zero in truth holds only rounding noise of the others. NaN agrees with NaN.
std::optional<Disagreement> first_disagreement(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                                               const std::vector<double>& allowed = {});

}  // namespace hfta::train
