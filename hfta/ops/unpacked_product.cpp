#include "hfta/ops/unpacked_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/ops/thread_room.h"
#include "hfta/ops/unpacked_product_kernel.h"

namespace hfta::ops {
namespace {

/// Rows of the left factor beyond which LibTorch's products, which rearrange their factors first, are faster.
constexpr std::int64_t kMostRows = 512;
/// The left factors as the kernel reads them beside transposed right ones: a shared one is turned once.
template <typename T>
class TurnedLeft {
 public:
  TurnedLeft(const Factor& left, const ProductShape& shape, bool wanted)
      : left_(left), shape_(shape), wanted_(wanted), size_(wanted ? shape.inner * padded_rows(shape.rows, static_cast<const T*>(nullptr)) : 0) {
    if (wanted_ && !left_.per_lane()) turn_left(left_.of<T>(0), shape_, shared_ = thread_room<T, Room::TurnedFactor>(size_));
  }
  const T* of(std::int64_t lane) const {
    if (!wanted_ || shared_) return shared_;
    T* const own = thread_room<T, Room::TurnedFactor>(size_);
    turn_left(left_.of<T>(lane), shape_, own);
    return own;
  }

 private:
  const Factor& left_;
  const ProductShape& shape_;
  bool wanted_;
  std::int64_t size_;
  T* shared_ = nullptr;
};

template <typename T>
void run_product(const at::Tensor& left_tensor, const at::Tensor& right_tensor, const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& gate, bool relu,
                 const at::Tensor& out) {
  const Factor left{left_tensor}, right{right_tensor};
  const ProductShape shape{left.size(0), left.size(1), right.size(1)};
  const TurnedLeft<T> turned(left, shape, wants_turned_left(right.of<T>(0), shape));
  const auto each = shape.rows * shape.inner * shape.columns;
  at::parallel_for(0, out.size(0), std::max<std::int64_t>(1, kMultiplicationsPerThread / std::max<std::int64_t>(each, 1)), [&](std::int64_t begin, std::int64_t end) {
    for (auto lane = begin; lane < end; ++lane)
      unpacked_product(left.of<T>(lane), right.of<T>(lane), turned.of(lane), ends_of<T>(bias, gate, relu, lane), out.mutable_data_ptr<T>() + lane * out.stride(0), shape);
  });
}

at::Tensor& product_out(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& gate, bool relu,
                        std::int64_t lanes, at::Tensor& out) {
  const std::vector<std::int64_t> sizes{lanes, left.size(-2), right.size(-1)};
  HFTA_CHECK(out.is_contiguous() && out.sizes() == sizes, "ops::unpacked_product: expected a contiguous result of ", at::IntArrayRef(sizes), ", got ", out.sizes());
  left.scalar_type() == at::kFloat ? run_product<float>(left, right, bias, gate, relu, out) : run_product<double>(left, right, bias, gate, relu, out);
  return out;
}

at::Tensor product_of(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& gate, bool relu,
                      std::int64_t lanes) {
  auto out = at::empty({lanes, left.size(-2), right.size(-1)}, left.options());
  return product_out(left, right, bias, gate, relu, lanes, out);
}

}  // namespace

std::optional<LaneTensor> unpacked_product(const LaneProduct& product) {
  if (product.shape().rows > kMostRows) return std::nullopt;
  return product.call("hfta::unpacked_product");
}

}  // namespace hfta::ops

// Arguments as of `LaneProduct`.
TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("unpacked_product(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes) -> Tensor");
  library.def("unpacked_product.out(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes, *, Tensor(a!) out) -> Tensor(a!)");
  library.impl("unpacked_product", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::product_of));
  library.impl("unpacked_product.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::product_out));
}
