#pragma once

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/lane_product.h"

// How a kernel becomes an operator that computes a `LaneProduct`.

namespace hfta::ops {

/// Products that a lane has: one, or a batch. @param products `[lanes]` or `[lanes, b]`; they are numbered lane after lane.
inline std::int64_t products_of_lane(at::IntArrayRef products) { return products.size() == 2 ? products[1] : 1; }

/// Where a product's matrix begins in `[products, rows, columns]`, of which what all lanes share lacks the first axis.
template <typename T>
const T* matrix_data(const at::Tensor& tensor, at::IntArrayRef products, std::int64_t number) {
  const auto batch = products_of_lane(products);
  const auto* const lane = lane_data<T>(tensor, static_cast<std::int64_t>(products.size()) + 1, number / batch);
  return batch == 1 ? lane : lane + number % batch * tensor.stride(-3);
}

/// A factor of products.
struct Factor {
  const at::Tensor& tensor;
  at::IntArrayRef products;  ///< `[lanes]` or `[lanes, b]`.

  /// One matrix for all products.
  bool is_one() const { return tensor.dim() == 2; }
  template <typename T>
  Matrix<T> of(std::int64_t number) const {
    return {matrix_data<T>(tensor, products, number), tensor.stride(-2), tensor.stride(-1)};
  }
};

/// A `LaneProduct` while its operator runs: nothing is owned.
struct LaneProductRun {
  Factor left, right;
  const std::optional<at::Tensor> &bias, &gate;
  bool relu;
  ProductShape shape;
  const at::Tensor& out;  ///< `[products, n, m]`, contiguous.

  /// What a product's sums begin and end with.
  template <typename T>
  Ends<T> ends_of(std::int64_t number) const {
    const auto lane = number / products_of_lane(left.products);
    return {bias ? lane_data<T>(*bias, 1, lane) : nullptr, gate ? matrix_data<T>(*gate, left.products, number) : nullptr, relu};
  }
};

/// Runs `work(number, its result)` for all products, on several threads where there is enough to do.
template <typename T, typename Work>
void each_product(const LaneProductRun& product, const Work& work) {
  constexpr std::int64_t kMultiplicationsPerThread = 1 << 20;  // below, a thread of its own costs more than it saves
  const auto& s = product.shape;
  auto* const results = product.out.mutable_data_ptr<T>();
  base::parallel_for(0, c10::multiply_integers(product.left.products), std::max<std::int64_t>(1, kMultiplicationsPerThread / std::max<std::int64_t>(s.rows * s.inner * s.columns, 1)),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (auto number = begin; number < end; ++number) work(number, results + number * s.rows * s.columns);
                     });
}

/// The operator `hfta::<Kernel::kName>` and its `out=` variant. @tparam Kernel has `run(const LaneProductRun&)`.
template <typename Kernel>
struct LaneProductOperator {
  using Optional = std::optional<at::Tensor>;

  static std::vector<std::int64_t> sizes_of(const at::Tensor& left, const at::Tensor& right, at::IntArrayRef products) {
    auto sizes = products.vec();
    sizes.insert(sizes.end(), {left.size(-2), right.size(-1)});
    return sizes;
  }

  static at::Tensor& into(const at::Tensor& left, const at::Tensor& right, const Optional& bias, const Optional& gate, bool relu, at::IntArrayRef products, at::Tensor& out) {
    const auto sizes = sizes_of(left, right, products);
    HFTA_CHECK(out.is_contiguous() && out.sizes() == sizes, "ops::", Kernel::kName, ": expected a contiguous result of ", at::IntArrayRef(sizes), ", got ", out.sizes());
    Kernel::run({{left, products}, {right, products}, bias, gate, relu, product_shape(left, right), out});
    return out;
  }

  static at::Tensor call(const at::Tensor& left, const at::Tensor& right, const Optional& bias, const Optional& gate, bool relu, at::IntArrayRef products) {
    auto out = at::empty(sizes_of(left, right, products), left.options());
    return into(left, right, bias, gate, relu, products, out);
  }

  static void define(torch::Library& library) {
    const std::string name = Kernel::kName, arguments = "Tensor left, Tensor right, Tensor? bias, Tensor? gate, bool relu, int[] products";
    library.def((name + '(' + arguments + ") -> Tensor").c_str());
    library.def((name + ".out(" + arguments + ", *, Tensor(a!) out) -> Tensor(a!)").c_str());
    library.impl(name.c_str(), c10::DispatchKey::CPU, TORCH_FN(call));
    library.impl((name + ".out").c_str(), c10::DispatchKey::CPU, TORCH_FN(into));
  }
};

}  // namespace hfta::ops
