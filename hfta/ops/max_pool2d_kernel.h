#pragma once

#include <cstdint>

namespace hfta::ops {

/// A 2-d max pooling of planes `[height, width]`; pairs are (vertical, horizontal).
struct MaxPool2dShape {
  std::int64_t height, width, out_height, out_width;
  std::int64_t kernel[2], stride[2], padding[2], dilation[2];
};

/// Pools contiguous planes; indices are positions in the plane. Ties take the first position, NaN the last one, as LibTorch does.
/// `readable`: elements that may be read from `input` on, at least `planes * height * width`.
void max_pool2d_planes(const float* input, float* output, std::int64_t* indices, std::int64_t planes, std::int64_t readable,
                       const MaxPool2dShape& shape);
void max_pool2d_planes(const double* input, double* output, std::int64_t* indices, std::int64_t planes, std::int64_t readable,
                       const MaxPool2dShape& shape);

/// Writes the gradient of the planes: each output's gradient is added at its index, zero elsewhere.
void max_pool2d_planes_backward(const float* grad_output, const std::int64_t* indices, float* grad_input, std::int64_t planes,
                                const MaxPool2dShape& shape);
void max_pool2d_planes_backward(const double* grad_output, const std::int64_t* indices, double* grad_input, std::int64_t planes,
                                const MaxPool2dShape& shape);

}  // namespace hfta::ops
