#pragma once

#include <cstdint>

namespace hfta::ops {

/// A 2-d convolution of stride and dilation one over contiguous images `[channels, height, width]`; pairs are (vertical, horizontal).
struct DirectShape {
  std::int64_t channels, height, width, outputs;
  std::int64_t kernel[2], padding[2];

  std::int64_t out_height() const { return height + 2 * padding[0] - kernel[0] + 1; }
  std::int64_t out_width() const { return width + 2 * padding[1] - kernel[1] + 1; }
};

/// The convolution whose result is the gradient of the images: outputs and channels change places, the kernel is turned round.
inline DirectShape turned(const DirectShape& s) {
  return {.channels = s.outputs,
          .height = s.out_height(),
          .width = s.out_width(),
          .outputs = s.channels,
          .kernel = {s.kernel[0], s.kernel[1]},
          .padding = {s.kernel[0] - 1 - s.padding[0], s.kernel[1] - 1 - s.padding[1]}};
}

/// The widest kernel whose weight gradient there is code for.
inline constexpr std::int64_t kDirectKernelWidth = 7;

/// Convolves images with weights `[outputs, channels, kernel...]`; `bias` `[outputs]` or null. Writes `[images, outputs, out...]`.
void direct_convolution(const float* input, const float* weight, const float* bias, float* output, std::int64_t images, const DirectShape& shape);
void direct_convolution(const double* input, const double* weight, const double* bias, double* output, std::int64_t images, const DirectShape& shape);

/// The gradient of the images `[images, channels, height, width]`; the padding must be smaller than the kernel.
void direct_input_gradient(const float* grad_output, const float* weight, float* grad_input, std::int64_t images, const DirectShape& shape);
void direct_input_gradient(const double* grad_output, const double* weight, double* grad_input, std::int64_t images, const DirectShape& shape);

/// The gradients of weight and bias, summed over the images.
void direct_weight_gradient(const float* grad_output, const float* input, float* grad_weight, float* grad_bias, std::int64_t images,
                            const DirectShape& shape);
void direct_weight_gradient(const double* grad_output, const double* input, double* grad_weight, double* grad_bias, std::int64_t images,
                            const DirectShape& shape);

}  // namespace hfta::ops
