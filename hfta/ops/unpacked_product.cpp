#include "hfta/ops/unpacked_product.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
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
/// Multiplications below which a thread of its own costs more than it saves.
constexpr std::int64_t kMultiplicationsPerThread = 1 << 20;

/// A factor `[lanes or none, rows, columns]`.
struct Factor {
  const at::Tensor& tensor;
  bool per_lane() const { return tensor.dim() == 3; }
  std::int64_t size(int axis) const { return tensor.size(axis - 2); }
  template <typename T>
  Matrix<T> of(std::int64_t lane) const {
    return {lane_data<T>(tensor, 2, lane), tensor.stride(-2), tensor.stride(-1)};
  }
};

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
      unpacked_product(left.of<T>(lane), right.of<T>(lane), turned.of(lane), {bias ? lane_data<T>(*bias, 1, lane) : nullptr, gate ? lane_data<T>(*gate, 2, lane) : nullptr, relu}, out.mutable_data_ptr<T>() + lane * out.stride(0), shape);
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

bool is_bias(const at::Tensor& lanes_first, std::int64_t lane_dim, std::int64_t columns) {
  return lane_dim == 1 && lanes_first.size(-1) == columns && lanes_first.stride(-1) == 1;
}

}  // namespace

std::optional<LaneTensor> unpacked_product(const LaneTensor& left, const LaneTensor& right, const std::optional<LaneTensor>& bias, const ProductActivation& activation,
                                           std::int64_t lanes) {
  const auto type = left.tensor.scalar_type();
  if (left.lane_dim() != 2 || right.lane_dim() != 2 || !left.tensor.is_cpu() || (type != at::kFloat && type != at::kDouble)) return std::nullopt;
  if (right.tensor.scalar_type() != type || (bias && bias->tensor.scalar_type() != type)) return std::nullopt;
  const auto first = lanes_first_or_shared(left, lanes), second = lanes_first_or_shared(right, lanes);
  if (first.numel() == 0 || second.numel() == 0 || first.size(-2) > kMostRows) return std::nullopt;
  if (second.stride(-1) != 1 && second.stride(-2) != 1) return std::nullopt;
  const auto vectors = bias ? std::optional(lanes_first_or_shared(*bias, lanes)) : std::nullopt;
  if (vectors && !is_bias(*vectors, bias->lane_dim(), second.size(-1))) return std::nullopt;
  std::optional<at::Tensor> gate;
  if (activation.gate) gate = lanes_first_or_shared(*activation.gate, lanes).contiguous();
  if (gate && gate->scalar_type() != type) return std::nullopt;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::unpacked_product", "").typed<decltype(product_of)>();
  return LaneTensor{op.call(first, second, vectors, gate, activation.relu, lanes), 0};
}

}  // namespace hfta::ops

// Factors `[lanes or none, n, k]` and `[lanes or none, k, m]`, bias `[lanes or none, m]`, gate `[lanes or none, n, m]`, contiguous; the result
// is `[lanes, n, m]`.
TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("unpacked_product(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes) -> Tensor");
  library.def("unpacked_product.out(Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes, *, Tensor(a!) out) -> Tensor(a!)");
  library.impl("unpacked_product", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::product_of));
  library.impl("unpacked_product.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::product_out));
}
