#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace hfta::optim {

/// Norm of each lane's gradients `[width, ...]` over all parameters (undefined ones are left out), and scales them in place by
/// `min(1, max_norm / (norm + 1e-6))` as `torch.nn.utils.clip_grad_norm_` does. `max_norm` has one entry per lane; infinity clips nothing.
/// @returns `[width]`, of the gradients' type and device: the norms before.
at::Tensor clip_gradients(std::span<const at::Tensor> gradients, const std::vector<double>& max_norm);

}  // namespace hfta::optim
