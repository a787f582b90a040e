#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstring>
#include <vector>

#include "hfta/base/parallel.h"

namespace hfta::ops {
namespace {

using at::Tensor;

std::int64_t checked_row(std::int64_t index, std::int64_t rows) {
  TORCH_CHECK_INDEX(index >= 0 && index < rows, "index out of range in self");
  return index;
}

/// Calls `visit(n, index)` for the lane's indices, which are long or int.
template <typename Visit>
void each_index(const Tensor& indices, std::int64_t lane, Visit visit) {
  const auto count = indices.size(1), step = indices.stride(1), start = lane * indices.stride(0);
  if (indices.scalar_type() == at::kLong) {
    const auto* data = indices.const_data_ptr<std::int64_t>() + start;
    for (std::int64_t n = 0; n < count; ++n) visit(n, data[n * step]);
  } else {
    const auto* data = indices.const_data_ptr<std::int32_t>() + start;
    for (std::int64_t n = 0; n < count; ++n) visit(n, data[n * step]);
  }
}

Tensor& embedding_out(const Tensor& table, const Tensor& indices, Tensor& out) {
  const auto lanes = table.size(0), rows = table.size(1), row_bytes = table.size(2) * static_cast<std::int64_t>(table.element_size());
  const auto item = static_cast<std::int64_t>(table.element_size());
  const auto* from = static_cast<const char*>(table.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  base::parallel_for(0, lanes, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t lane = first; lane < last; ++lane)
      each_index(indices, lane, [&](std::int64_t n, std::int64_t index) {
        const auto place = lane * table.stride(0) + checked_row(index, rows) * table.stride(1);
        std::memcpy(to + (lane * indices.size(1) + n) * row_bytes, from + place * item, static_cast<std::size_t>(row_bytes));
      });
  });
  return out;
}

Tensor embedding_new(const Tensor& table, const Tensor& indices) {
  auto out = at::empty({table.size(0), indices.size(1), table.size(2)}, table.options());
  return embedding_out(table, indices, out);
}

template <typename T>
void backward(const Tensor& gradient, const Tensor& indices, std::int64_t padding, bool by_frequency, Tensor& out) {
  const auto lanes = out.size(0), rows = out.size(1), width = out.size(2);
  out.zero_();
  auto* to = out.mutable_data_ptr<T>();
  const auto* from = gradient.const_data_ptr<T>();
  base::parallel_for(0, lanes, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> counts;
    for (std::int64_t lane = first; lane < last; ++lane) {
      if (by_frequency) {
        counts.assign(static_cast<std::size_t>(rows), 0);
        each_index(indices, lane, [&](std::int64_t, std::int64_t index) { ++counts[static_cast<std::size_t>(checked_row(index, rows))]; });
      }
      each_index(indices, lane, [&](std::int64_t n, std::int64_t index) {
        if (index == padding) return;
        auto* target = to + (lane * rows + checked_row(index, rows)) * width;
        const auto* source = from + lane * gradient.stride(0) + n * gradient.stride(1);
        const T factor = by_frequency ? T(1) / static_cast<T>(counts[static_cast<std::size_t>(index)]) : T(1);
        for (std::int64_t d = 0; d < width; ++d) target[d] += factor * source[d];
      });
    }
  });
}

Tensor& embedding_backward_out(const Tensor& gradient, const Tensor& indices, std::int64_t, std::int64_t padding, bool by_frequency, Tensor& out) {
  if (out.scalar_type() == at::kFloat) backward<float>(gradient, indices, padding, by_frequency, out);
  else backward<double>(gradient, indices, padding, by_frequency, out);
  return out;
}

Tensor embedding_backward_new(const Tensor& gradient, const Tensor& indices, std::int64_t rows, std::int64_t padding, bool by_frequency) {
  auto out = at::empty({gradient.size(0), rows, gradient.size(2)}, gradient.options());
  return embedding_backward_out(gradient, indices, rows, padding, by_frequency, out);
}

}  // namespace
}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  // table `[lanes, V, D]` with contiguous rows, indices `[lanes, N]`, gradient `[lanes, N, D]` with contiguous rows.
  library.def("embedding(Tensor table, Tensor indices) -> Tensor");
  library.def("embedding.out(Tensor table, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)");
  library.def("embedding_backward(Tensor grad_output, Tensor indices, int rows, int padding_index, bool scale_by_frequency) -> Tensor");
  library.def(
      "embedding_backward.out(Tensor grad_output, Tensor indices, int rows, int padding_index, bool scale_by_frequency, *, Tensor(a!) out) -> Tensor(a!)");
  library.impl("embedding", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::embedding_new));
  library.impl("embedding.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::embedding_out));
  library.impl("embedding_backward", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::embedding_backward_new));
  library.impl("embedding_backward.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::embedding_backward_out));
}
