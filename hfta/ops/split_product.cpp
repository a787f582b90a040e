#include "hfta/ops/split_product.h"

#include "hfta/ops/lane_product_operator.h"
#include "hfta/ops/split_product_kernel.h"

namespace hfta::ops {
namespace {

/// Multiplications below which splitting costs more than it saves.
constexpr std::int64_t kLeastMultiplications = 1 << 17;
/// Numbers of the kept factor's parts that still lie near the processor.
constexpr std::int64_t kMostParts = 1 << 22;

SplitWay way_of(const Factor& left, const Factor& right, const ProductShape& shape) {
  return split_way(left.of<float>(0), left.is_one(), right.of<float>(0), right.is_one(), shape);
}

struct SplitProduct {
  static constexpr const char* kName = "split_product";

  static void run(const LaneProductRun& product) {
    HFTA_CHECK(has_split_products(), "ops::split_product: expected a processor with a matrix unit, got none");
    const auto &left = product.left, &right = product.right;
    const auto& shape = product.shape;
    const auto way = way_of(left, right, shape);
    const auto parts_of = [&](std::int64_t lane) -> const std::uint16_t* {
      auto* const parts = thread_room<std::uint16_t, Room::Parts>(kept_parts(way, shape));
      return split_kept(way, left.of<float>(lane), right.of<float>(lane), shape, parts) ? parts : nullptr;
    };
    const bool once = (way.keeps_left ? left : right).is_one();
    const auto* const shared = once ? parts_of(0) : nullptr;
    each_product<float>(product, [&](std::int64_t lane, float* to) {
      const auto of_left = left.of<float>(lane), of_right = right.of<float>(lane);
      const auto ends = product.ends_of<float>(lane);
      const auto* const parts = once ? shared : parts_of(lane);
      if (!parts || !split_product(way, of_left, of_right, parts, ends, to, shape))
        unpacked_product(of_left, of_right, turned_in_room(of_left, of_right, shape), ends, to, shape);
    });
  }
};

}  // namespace

std::optional<LaneTensor> split_product(const LaneProduct& product) {
  if (product.products.size() != 1 || product.left.scalar_type() != at::kFloat || !has_split_products()) return std::nullopt;
  const auto shape = product_shape(product.left, product.right);
  if (shape.rows * shape.inner * shape.columns < kLeastMultiplications) return std::nullopt;
  if (kept_parts(way_of({product.left, product.products}, {product.right, product.products}, shape), shape) > kMostParts) return std::nullopt;
  return product.call("hfta::split_product");
}

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) { hfta::ops::LaneProductOperator<hfta::ops::SplitProduct>::define(library); }
