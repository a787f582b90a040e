#pragma once

#include <cstdint>

#include "hfta/ops/direct_convolution_kernel.h"

namespace hfta::ops {

/// How a 3 x 3 convolution of stride one is computed by Winograd's F(2 x 2, 3 x 3): tiles of 2 x 2 outputs, each from 4 x 4 inputs, whose
/// sixteen transformed numbers are multiplied as matrices over the channels. 16 products for 36.
/// @par Source Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2016), sections 4.1 and 4.2.
class Winograd {
 public:
  /// @param shape with a kernel of 3 x 3 and a padding of at most two.
  explicit Winograd(const DirectShape& shape);

  const DirectShape& shape() const { return shape_; }
  /// Rows of tiles an image.
  std::int64_t tile_rows() const { return tile_rows_; }
  /// Floats of the transformed weights, of scratch for `convolve`, and of scratch and sums for `add_gradients`.
  std::int64_t weight_floats() const;
  std::int64_t scratch_floats() const;
  std::int64_t gradient_scratch_floats() const;
  std::int64_t sum_floats() const;
  /// Transforms the weights `[outputs, channels, 3, 3]`. Of `turned` ones, `[channels, outputs, 3, 3]`, the kernel is turned round: so the gradient of a
  /// convolution's input is a convolution.
  void transform_weights(const float* weight, bool turned, float* transformed) const;

  /// Convolves rows of tiles `[first, last)`, counted through all images. `bias` `[outputs]` or null.
  void convolve(const float* input, const float* transformed, const float* bias, float* output, std::int64_t images, std::int64_t first, std::int64_t last,
                float* scratch) const;

  /// Whether so many images are few: convolved in one go, each panel of weights is transformed just before its use, in `panel_floats()`.
  bool are_few(std::int64_t images) const { return images * tile_rows_ <= block_rows_; }
  std::int64_t panel_floats() const;
  void convolve_few(const float* input, const float* weight, bool turned, const float* bias, float* output, std::int64_t images, float* transformed,
                    float* scratch) const;

  /// Adds what rows of tiles `[first, last)` give to the transformed gradient of the weights and to the bias', `sums`.
  void add_gradients(const float* grad_output, const float* input, float* sums, std::int64_t images, std::int64_t first, std::int64_t last,
                     float* scratch) const;
  /// The gradients of weights and bias from the sums.
  void write_gradients(const float* sums, float* grad_weight, float* grad_bias) const;

 private:
  template <typename Transformed>
  void convolve_block(const float* input, const Transformed& transformed, const float* bias, float* output, std::int64_t images, std::int64_t row,
                      std::int64_t end, float* scratch) const;
  std::int64_t rows_of(std::int64_t floats_per_tile, std::int64_t fewest) const;
  DirectShape shape_;
  std::int64_t tile_rows_, tile_columns_;  // an image
  std::int64_t in_stride_, out_stride_;    // floats between a tile's transformed inputs (outputs) and the next tile's
  std::int64_t block_rows_, block_tiles_;  // rows of tiles in one go, and their tiles, rounded up
  std::int64_t chunk_;                     // outputs in one go
  std::int64_t gradient_rows_, gradient_tiles_;
};

}  // namespace hfta::ops
