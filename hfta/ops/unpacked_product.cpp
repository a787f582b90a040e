#include "hfta/ops/unpacked_product.h"

#include "hfta/ops/lane_product_operator.h"

namespace hfta::ops {
namespace {

/// Rows of the left factor beyond which LibTorch's products, which rearrange their factors first, are faster.
constexpr std::int64_t kMostRows = 512;

struct UnpackedProduct {
  static constexpr const char* kName = "unpacked_product";

  static void run(const LaneProductRun& product) {
    product.out.scalar_type() == at::kFloat ? run_lanes<float>(product) : run_lanes<double>(product);
  }

 private:
  template <typename T>
  static void run_lanes(const LaneProductRun& product) {
    const auto &left = product.left, &right = product.right;
    const auto& shape = product.shape;
    const bool once = !left.per_lane();
    const T* const shared = once ? turned_in_room(left.of<T>(0), right.of<T>(0), shape) : nullptr;
    each_lane<T>(product, [&](std::int64_t lane, T* to) {
      const auto* const turned = once ? shared : turned_in_room(left.of<T>(lane), right.of<T>(lane), shape);
      unpacked_product(left.of<T>(lane), right.of<T>(lane), turned, product.ends_of<T>(lane), to, shape);
    });
  }
};

}  // namespace

std::optional<LaneTensor> unpacked_product(const LaneProduct& product) {
  if (product_shape(product.left, product.right).rows > kMostRows) return std::nullopt;
  return product.call("hfta::unpacked_product");
}

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) { hfta::ops::LaneProductOperator<hfta::ops::UnpackedProduct>::define(library); }
