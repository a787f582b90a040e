#include "hfta/ops/unpacked_product.h"

#include "hfta/ops/lane_product_operator.h"

namespace hfta::ops {
namespace {

/// Rows of the left factor beyond which LibTorch's products, which rearrange their factors first, are not tried against: on processors whose
/// vector units they use in full they are faster from some hundred on.
constexpr std::int64_t kMostRows = 4096;

struct UnpackedProduct {
  static constexpr const char* kName = "unpacked_product";

  static void run(const LaneProductRun& product) {
    product.out.scalar_type() == at::kFloat ? run_all<float>(product) : run_all<double>(product);
  }

 private:
  template <typename T>
  static void run_all(const LaneProductRun& product) {
    const auto &left = product.left, &right = product.right;
    const auto& shape = product.shape;
    const bool once = left.is_one();
    const T* const shared = once ? turned_in_room(left.of<T>(0), right.of<T>(0), shape) : nullptr;
    each_product<T>(product, [&](std::int64_t number, T* to) {
      const auto of_left = left.of<T>(number), of_right = right.of<T>(number);
      unpacked_product(of_left, of_right, once ? shared : turned_in_room(of_left, of_right, shape), product.ends_of<T>(number), to, shape);
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
