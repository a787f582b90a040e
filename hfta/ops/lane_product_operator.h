#pragma once

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/lane_product.h"

// How a kernel becomes an operator that computes a `LaneProduct`.

namespace hfta::ops {

/// A factor `[lanes or none, rows, columns]`.
struct Factor {
  const at::Tensor& tensor;
  bool per_lane() const { return tensor.dim() == 3; }
  template <typename T>
  Matrix<T> of(std::int64_t lane) const {
    return {lane_data<T>(tensor, 2, lane), tensor.stride(-2), tensor.stride(-1)};
  }
};

/// A `LaneProduct` while its operator runs: nothing is owned.
struct LaneProductRun {
  Factor left, right;
  const std::optional<at::Tensor> &bias, &gate;
  bool relu;
  ProductShape shape;
  const at::Tensor& out;  ///< `[lanes, n, m]`, contiguous.

  /// What a lane's sums begin and end with.
  template <typename T>
  Ends<T> ends_of(std::int64_t lane) const {
    return {bias ? lane_data<T>(*bias, 1, lane) : nullptr, gate ? lane_data<T>(*gate, 2, lane) : nullptr, relu};
  }
};

/// Runs `work(lane, its result)` for all lanes, on several threads where there is enough to do.
template <typename T, typename Work>
void each_lane(const LaneProductRun& product, const Work& work) {
  constexpr std::int64_t kMultiplicationsPerThread = 1 << 20;  // below, a thread of its own costs more than it saves
  const auto& s = product.shape;
  auto* const results = product.out.mutable_data_ptr<T>();
  base::parallel_for(0, product.out.size(0), std::max<std::int64_t>(1, kMultiplicationsPerThread / std::max<std::int64_t>(s.rows * s.inner * s.columns, 1)),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (auto lane = begin; lane < end; ++lane) work(lane, results + lane * s.rows * s.columns);
                     });
}

/// The operator `hfta::<Kernel::kName>` and its `out=` variant. @tparam Kernel has `run(const LaneProductRun&)`.
template <typename Kernel>
struct LaneProductOperator {
  using Optional = std::optional<at::Tensor>;

  static at::Tensor& into(const at::Tensor& left, const at::Tensor& right, const Optional& bias, const Optional& gate, bool relu, std::int64_t lanes, at::Tensor& out) {
    const std::vector<std::int64_t> sizes{lanes, left.size(-2), right.size(-1)};
    HFTA_CHECK(out.is_contiguous() && out.sizes() == sizes, "ops::", Kernel::kName, ": expected a contiguous result of ", at::IntArrayRef(sizes), ", got ", out.sizes());
    Kernel::run({{left}, {right}, bias, gate, relu, product_shape(left, right), out});
    return out;
  }

  static at::Tensor call(const at::Tensor& left, const at::Tensor& right, const Optional& bias, const Optional& gate, bool relu, std::int64_t lanes) {
    auto out = at::empty({lanes, left.size(-2), right.size(-1)}, left.options());
    return into(left, right, bias, gate, relu, lanes, out);
  }

  static void define(torch::Library& library) {
    const std::string name = Kernel::kName, arguments = "Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int lanes";
    library.def((name + '(' + arguments + ") -> Tensor").c_str());
    library.def((name + ".out(" + arguments + ", *, Tensor(a!) out) -> Tensor(a!)").c_str());
    library.impl(name.c_str(), c10::DispatchKey::CPU, TORCH_FN(call));
    library.impl((name + ".out").c_str(), c10::DispatchKey::CPU, TORCH_FN(into));
  }
};

}  // namespace hfta::ops
