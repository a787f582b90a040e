#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace hfta::ops {

/// A value of a group of lanes: one physical tensor and where its lane axis is.
///
/// `axis` empty: the value is shared, equal for all lanes, and `tensor` has the single model's shape. Otherwise `tensor` has one
/// more axis than the single model's value, of size `lanes`, at `axis`. Each operator leaves the axis where its layout suits it
/// (a grouped convolution beside channels), so nothing is transposed without need.
struct LaneTensor {
  at::Tensor tensor;
  std::optional<std::int64_t> axis;

  bool is_shared() const { return !axis.has_value(); }
  /// Dimensions of one lane's value.
  std::int64_t lane_dim() const { return tensor.dim() - (axis ? 1 : 0); }
};

/// A view with the lane axis first: `[lanes, ...]`; a shared value is expanded (stride 0).
at::Tensor lanes_first(const LaneTensor& value, std::int64_t lanes);
/// The same, a shared value as it is.
at::Tensor lanes_first_or_shared(const LaneTensor& value, std::int64_t lanes);
/// A view of one lane's value (the shared value itself when shared).
at::Tensor lane_of(const LaneTensor& value, std::int64_t lane);

/// Where a lane's numbers begin in a tensor with lanes first, or in one that all lanes share. @param dim dimensions of one lane's value.
template <typename T>
const T* lane_data(const at::Tensor& lanes_first_or_shared, std::int64_t dim, std::int64_t lane) {
  return lanes_first_or_shared.const_data_ptr<T>() + (lanes_first_or_shared.dim() > dim ? lane * lanes_first_or_shared.stride(0) : 0);
}

}  // namespace hfta::ops
