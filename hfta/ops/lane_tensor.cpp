#include "hfta/ops/lane_tensor.h"

namespace hfta::ops {

at::Tensor lanes_first(const LaneTensor& value, std::int64_t lanes) {
  if (value.axis) return value.tensor.movedim(*value.axis, 0);
  auto sizes = value.tensor.sizes().vec();
  sizes.insert(sizes.begin(), lanes);
  return value.tensor.unsqueeze(0).expand(sizes);
}

at::Tensor lanes_first_or_shared(const LaneTensor& value, std::int64_t lanes) { return value.is_shared() ? value.tensor : lanes_first(value, lanes); }

at::Tensor lane_of(const LaneTensor& value, std::int64_t lane) {
  return value.axis ? value.tensor.select(*value.axis, lane) : value.tensor;
}

}  // namespace hfta::ops
