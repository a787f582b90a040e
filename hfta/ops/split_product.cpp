#include "hfta/ops/split_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/ops/split_product_kernel.h"
#include "hfta/ops/thread_room.h"

namespace hfta::ops {
namespace {

/// Multiplications below which splitting costs more than it saves.
constexpr std::int64_t kLeastMultiplications = 1 << 17;
/// Numbers of the kept factor's parts that still lie near the processor.
constexpr std::int64_t kMostParts = 1 << 22;

using at::Tensor;

SplitWay way_of(const Tensor& left, const Tensor& right, const ProductShape& shape) {
  const Factor first{left}, second{right};
  return split_way(first.of<float>(0), !first.per_lane(), second.of<float>(0), !second.per_lane(), shape);
}

/// As if the processor had no such unit.
void multiply_unsplit(const Matrix<float>& left, const Matrix<float>& right, const Ends<float>& ends, float* out, const ProductShape& shape) {
  float* turned = nullptr;
  if (wants_turned_left(right, shape)) {
    turned = thread_room<float, Room::TurnedFactor>(shape.inner * padded_rows(shape.rows, static_cast<const float*>(nullptr)));
    turn_left(left, shape, turned);
  }
  unpacked_product(left, right, turned, ends, out, shape);
}

Tensor& product_out(const Tensor& left_tensor, const Tensor& right_tensor, const std::optional<Tensor>& bias, const std::optional<Tensor>& gate, bool relu, std::int64_t lanes,
                    Tensor& out) {
  const Factor left{left_tensor}, right{right_tensor};
  const ProductShape shape{left.size(0), left.size(1), right.size(1)};
  const std::vector<std::int64_t> sizes{lanes, shape.rows, shape.columns};
  HFTA_CHECK(out.is_contiguous() && out.sizes() == sizes, "ops::split_product: expected a contiguous result of ", at::IntArrayRef(sizes), ", got ", out.sizes());
  const auto way = way_of(left_tensor, right_tensor, shape);
  const auto parts_of = [&](std::int64_t lane) {
    auto* const parts = thread_room<std::uint16_t, Room::Parts>(kept_parts(way, shape));
    return split_kept(way, left.of<float>(lane), right.of<float>(lane), shape, parts) ? parts : nullptr;
  };
  const bool once = !(way.keeps_left ? left : right).per_lane();
  const auto* const shared = once ? parts_of(0) : nullptr;
  float* const to = out.mutable_data_ptr<float>();
  const auto grain = std::max<std::int64_t>(1, kMultiplicationsPerThread / (shape.rows * shape.inner * shape.columns));
  at::parallel_for(0, lanes, grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto lane = begin; lane < end; ++lane) {
      const auto ends = ends_of<float>(bias, gate, relu, lane);
      const auto *const parts = once ? shared : parts_of(lane);
      if (!parts || !split_product(way, left.of<float>(lane), right.of<float>(lane), parts, ends, to + lane * out.stride(0), shape))
        multiply_unsplit(left.of<float>(lane), right.of<float>(lane), ends, to + lane * out.stride(0), shape);
    }
  });
  return out;
}

Tensor product_of(const Tensor& left, const Tensor& right, const std::optional<Tensor>& bias, const std::optional<Tensor>& gate, bool relu, std::int64_t lanes) {
  auto out = at::empty({lanes, left.size(-2), right.size(-1)}, left.options());
  return product_out(left, right, bias, gate, relu, lanes, out);
}

}  // namespace

std::optional<LaneTensor> split_product(const LaneProduct& product) {
  if (product.left.scalar_type() != at::kFloat || !has_split_products()) return std::nullopt;
  const auto shape = product.shape();
  if (shape.rows * shape.inner * shape.columns < kLeastMultiplications || kept_parts(way_of(product.left, product.right, shape), shape) > kMostParts) return std::nullopt;
  return product.call("hfta::split_product");
}

}  // namespace hfta::ops

// Arguments as of `LaneProduct`.
TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("split_product(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes) -> Tensor");
  library.def("split_product.out(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes, *, Tensor(a!) out) -> Tensor(a!)");
  library.impl("split_product", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::product_of));
  library.impl("split_product.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::product_out));
}
