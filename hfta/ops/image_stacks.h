#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "hfta/ops/convolution.h"
#include "hfta/ops/direct_convolution_kernel.h"

// What the convolutions of ours share: images and weights as their operators take them.

namespace hfta::ops {

/// Each lane's images `[lanes, N, C, H, W]`, or shared ones `[N, C, H, W]`.
struct Images {
  const at::Tensor& tensor;
  bool per_lane() const { return tensor.dim() == 5; }
  std::int64_t size(int axis) const { return tensor.size(axis + (per_lane() ? 1 : 0)); }
  template <typename T>
  const T* of(std::int64_t lane) const {
    return lane_data<T>(tensor, 4, lane);
  }
};

template <typename T>
const T* row_of(const at::Tensor& stack, std::int64_t lane) {
  return stack.const_data_ptr<T>() + lane * stack.stride(0);
}

/// @param weight `[lanes, outputs, channels, kernel...]`
inline DirectShape shape_of(std::int64_t channels, std::int64_t height, std::int64_t width, const at::Tensor& weight, at::IntArrayRef padding) {
  return {.channels = channels,
          .height = height,
          .width = width,
          .outputs = weight.size(1),
          .kernel = {weight.size(3), weight.size(4)},
          .padding = {padding[0], padding[1]}};
}

/// Calls an operator of ours, so that it is recorded.
template <typename Signature, typename... Arguments>
auto call(const char* name, Arguments&&... arguments) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(std::forward<Arguments>(arguments)...);
}

/// Lanes first, each lane's row contiguous.
inline at::Tensor rows(const LaneTensor& value, std::int64_t lanes) {
  auto tensor = lanes_first(value, lanes);
  return tensor.numel() == 0 || tensor.select(0, 0).is_contiguous() ? tensor : tensor.contiguous();
}

/// Rows, or the shared images as they are.
inline at::Tensor images_of(const LaneTensor& value, std::int64_t lanes) { return value.is_shared() ? value.tensor.contiguous() : rows(value, lanes); }

inline std::array<std::int64_t, 2> both(const std::vector<std::int64_t>& values) { return {values[0], values.back()}; }

inline std::array<std::int64_t, 2> last_two(const LaneTensor& value) {
  const auto lane = lane_of(value, 0);
  return {lane.size(-2), lane.size(-1)};
}

/// Whether these are float or double images on the CPU, stride and dilation one, with a padding smaller than the kernel.
inline bool plain_images(const LaneTensor& input, const LaneTensor& weight, const ConvolutionOptions& options) {
  const auto all_one = [](const std::vector<std::int64_t>& values) { return std::ranges::all_of(values, [](auto v) { return v == 1; }); };
  if (input.lane_dim() != 4 || options.transposed || options.groups != 1 || !all_one(options.stride) || !all_one(options.dilation)) return false;
  const auto type = input.tensor.scalar_type();
  if (!input.tensor.is_cpu() || (type != at::kFloat && type != at::kDouble) || weight.tensor.scalar_type() != type || input.tensor.numel() == 0) return false;
  const auto padding = both(options.padding), kernel = last_two(weight), size = last_two(input);
  for (std::size_t axis = 0; axis < 2; ++axis)
    if (padding[axis] >= kernel[axis] || size[axis] + 2 * padding[axis] < kernel[axis]) return false;
  return true;
}

}  // namespace hfta::ops
