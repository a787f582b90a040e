#pragma once

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/lane_product.h"

// How a kernel becomes an operator that computes a `LaneProduct`.

namespace hfta::ops {

/// A factor of products that are numbered lane after lane: `[lanes, ..., rows, columns]`, of which what all lanes share lacks the first axis.
struct Factor {
  const at::Tensor& tensor;
  at::IntArrayRef products;  ///< `[lanes]` or `[lanes, b]`.

  /// One matrix for all products.
  bool is_one() const { return tensor.dim() == 2; }
  template <typename T>
  Matrix<T> of(std::int64_t product) const {
    const auto [lane, place] = lane_and_place(products, product);
    const auto* const data = lane_data<T>(tensor, static_cast<std::int64_t>(products.size()) + 1, lane);
    return {data + (products.size() == 2 ? place * tensor.stride(-3) : 0), tensor.stride(-2), tensor.stride(-1)};
  }

  /// A product's lane, and its place in the lane's batch.
  static std::pair<std::int64_t, std::int64_t> lane_and_place(at::IntArrayRef products, std::int64_t product) {
    if (products.size() == 1) return {product, 0};
    return {product / products[1], product % products[1]};
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
  Ends<T> ends_of(std::int64_t product) const {
    const auto [lane, place] = Factor::lane_and_place(left.products, product);
    const auto dim = static_cast<std::int64_t>(left.products.size()) + 1;
    return {bias ? lane_data<T>(*bias, 1, lane) : nullptr, gate ? lane_data<T>(*gate, dim, lane) + place * shape.rows * shape.columns : nullptr, relu};
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
