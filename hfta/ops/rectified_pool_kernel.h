#pragma once

#include <cstdint>

namespace hfta::ops {

/// Sizes of a plane; its outputs are half as many rows and columns, rounded down.
struct RectifiedPoolShape {
  std::int64_t height, width;

  std::int64_t out_height() const { return height / 2; }
  std::int64_t out_width() const { return width / 2; }
};

/// What of a window of 2 x 2 a gradient flows to: 0 to 3 in rows, or `kNothing` where ReLU is shut.
inline constexpr std::uint8_t kNothing = 4;

/// Max pooling by windows of 2 x 2 of the ReLU of contiguous planes, and which number of each window was taken. @param readable numbers from `input` on.
void rectified_pool(const float* input, float* output, std::uint8_t* which, std::int64_t planes, std::int64_t readable, const RectifiedPoolShape& shape);
void rectified_pool(const double* input, double* output, std::uint8_t* which, std::int64_t planes, std::int64_t readable, const RectifiedPoolShape& shape);

/// The gradient of `input`.
void rectified_pool_backward(const float* grad_output, const std::uint8_t* which, float* grad_input, std::int64_t planes, const RectifiedPoolShape& shape);
void rectified_pool_backward(const double* grad_output, const std::uint8_t* which, double* grad_input, std::int64_t planes, const RectifiedPoolShape& shape);

}  // namespace hfta::ops
