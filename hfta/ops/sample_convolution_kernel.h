#pragma once

#include <cstdint>

#include "hfta/ops/direct_convolution_kernel.h"

namespace hfta::ops {

/// A convolution of which vectors run across samples: sixteen images, turned so that each of their numbers is one vector, go through it
/// together. Taps are whole vectors wherever they lie, and rows of padding cost nothing. If `pooled`, a ReLU and the max pooling of 2 x 2 behind
/// it (`rectified_pool_kernel.h`) are part of it: what is between them is never written.
class SampleConvolution {
 public:
  SampleConvolution(const DirectShape& shape, bool pooled) : s_(shape), pooled_(pooled) {}

  static constexpr std::int64_t kSamples = 16;

  std::int64_t result_height() const { return pooled_ ? s_.out_height() / 2 : s_.out_height(); }
  std::int64_t result_width() const { return pooled_ ? s_.out_width() / 2 : s_.out_width(); }

  /// Convolves up to sixteen images with weights `[outputs, channels, kernel...]`; `bias` `[outputs]` or null. @param which of each window as
  /// `rectified_pool` says, or null where nothing is pooled.
  void forward(const float* input, const float* weight, const float* bias, float* output, std::uint8_t* which, std::int64_t images) const;

  /// Of up to sixteen images: writes the gradient of `input` and adds those of weight and bias to `sums`, unless these are null.
  void backward(const float* grad_output, const std::uint8_t* which, const float* input, const float* weight, float* grad_input, float* sums,
                std::int64_t images) const;
  std::int64_t sums_floats() const;
  /// What was summed, as gradients of the weight and of the bias.
  void write_sums(const float* sums, float* grad_weight, float* grad_bias) const;

 private:
  void input_gradient(const float* gradients, const float* weight, float* grad_input, std::int64_t images) const;

  DirectShape s_;
  bool pooled_;
};

}  // namespace hfta::ops
