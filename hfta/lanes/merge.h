#pragma once

#include "hfta/program/program.h"

namespace hfta::lanes {

/// A lane's program with operators made one where a kernel of ours computes them together (`ops/merged.cpp`):
/// - a classifier's loss and its gradient: `_log_softmax`, `nll_loss_forward` and their backwards become `hfta::cross_entropy`;
/// - `addmm` and the `relu` behind it: `hfta::addmm_relu`;
/// - `mm` and the `threshold_backward` behind it, a gradient on its way through a ReLU: `hfta::mm_gated`;
/// - `relu` and the max pooling by windows of 2 x 2 behind it: `hfta::rectified_max_pool2d`, their gradients `hfta::rectified_max_pool2d_backward`;
/// - `convolution` and such a pooling behind it, and their gradients: `hfta::convolution_rectified_max_pool2d` and `.._backward`.
/// Only where nothing else reads what was between them. Other programs stay as they are.
program::Program merged(program::Program program);

}  // namespace hfta::lanes
