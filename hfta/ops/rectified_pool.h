#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace hfta::ops {

/// Max pooling by windows of 2 x 2 of the ReLU of contiguous images `[..., height, width]`, and which number of each window was taken. An operator
/// of ours, so that it is recorded.
std::tuple<at::Tensor, at::Tensor> rectified_max_pool2d(const at::Tensor& images);
/// The gradient of images of this height and width.
at::Tensor rectified_max_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& which, at::IntArrayRef size);

}  // namespace hfta::ops
