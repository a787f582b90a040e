#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "hfta/base/parallel.h"
#include "hfta/ops/vector_sums.h"

// Rows of N values with weights that change from lane to lane. Inputs are `[lanes, A, B, N]` with any strides but the last, which is 1:
// so neither a lane axis inside the batch nor an expanded value is copied.

namespace hfta::ops {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

template <typename T>
HFTA_INLINE void moments_of(const T* x, std::int64_t n, T eps, T* mean, T* inverse_std) {
  const T center = sum_of(x, n) / static_cast<T>(n);
  *mean = center;
  *inverse_std = 1 / std::sqrt(squares_of(x, n, center) / static_cast<T>(n) + eps);
}

template <typename T>
HFTA_INLINE void scaled_row(const T* x, const T* weight, const T* bias, std::int64_t n, T mean, T inverse_std, T* __restrict y) {
  if (weight && bias) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse_std * weight[i] + bias[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse_std * (weight ? weight[i] : T(1)) + (bias ? bias[i] : T(0));
  }
}

/// Gradient of a row; a weighted gradient is kept in `dx` between the passes.
template <typename T>
HFTA_INLINE void row_gradient_of(const T* dy, const T* x, const T* weight, std::int64_t n, T mean, T inverse_std, T* __restrict dx) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = weight ? dy[i] * weight[i] : dy[i];
  const T a = sum_of<T>(dx, n) / static_cast<T>(n);
  const T b = products_of<T>(x, dx, n, mean) * inverse_std * inverse_std / static_cast<T>(n);
  for (std::int64_t i = 0; i < n; ++i) dx[i] = inverse_std * (dx[i] - a - (x[i] - mean) * b);
}

template <typename T>
HFTA_INLINE void add_parameters_of(const T* dy, const T* x, std::int64_t n, T mean, T inverse_std, T* __restrict dweight, T* __restrict dbias) {
  if (dweight)
    for (std::int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * (x[i] - mean) * inverse_std;
  if (dbias)
    for (std::int64_t i = 0; i < n; ++i) dbias[i] += dy[i];
}

// Function multiversioning does not go with templates.
HFTA_VECTOR_TARGETS void moments(const float* x, std::int64_t n, float eps, float* mean, float* inverse_std) { moments_of(x, n, eps, mean, inverse_std); }
HFTA_VECTOR_TARGETS void moments(const double* x, std::int64_t n, double eps, double* mean, double* inverse_std) { moments_of(x, n, eps, mean, inverse_std); }
HFTA_VECTOR_TARGETS void scale(const float* x, const float* weight, const float* bias, std::int64_t n, float mean, float inverse_std, float* y) {
  scaled_row(x, weight, bias, n, mean, inverse_std, y);
}
HFTA_VECTOR_TARGETS void scale(const double* x, const double* weight, const double* bias, std::int64_t n, double mean, double inverse_std, double* y) {
  scaled_row(x, weight, bias, n, mean, inverse_std, y);
}
HFTA_VECTOR_TARGETS void row_gradient(const float* dy, const float* x, const float* weight, std::int64_t n, float mean, float inverse_std, float* dx) {
  row_gradient_of(dy, x, weight, n, mean, inverse_std, dx);
}
HFTA_VECTOR_TARGETS void row_gradient(const double* dy, const double* x, const double* weight, std::int64_t n, double mean, double inverse_std, double* dx) {
  row_gradient_of(dy, x, weight, n, mean, inverse_std, dx);
}
HFTA_VECTOR_TARGETS void add_parameters(const float* dy, const float* x, std::int64_t n, float mean, float inverse_std, float* dweight, float* dbias) {
  add_parameters_of(dy, x, n, mean, inverse_std, dweight, dbias);
}
HFTA_VECTOR_TARGETS void add_parameters(const double* dy, const double* x, std::int64_t n, double mean, double inverse_std, double* dweight, double* dbias) {
  add_parameters_of(dy, x, n, mean, inverse_std, dweight, dbias);
}

struct RowShape {
  std::int64_t lanes, outer, inner, n;
  explicit RowShape(const Tensor& rows) : lanes(rows.size(0)), outer(rows.size(1)), inner(rows.size(2)), n(rows.size(3)) {}
};

template <typename T>
const T* row(const Tensor& rows, std::int64_t lane, std::int64_t a, std::int64_t b) {
  return rows.const_data_ptr<T>() + lane * rows.stride(0) + a * rows.stride(1) + b * rows.stride(2);
}

template <typename T>
const T* parameter(const Optional& values, std::int64_t lane) {
  return values && values->defined() ? values->const_data_ptr<T>() + lane * values->stride(0) : nullptr;
}

template <typename Visit>
void each_row(const RowShape& shape, std::int64_t lane, Visit visit) {
  std::int64_t index = lane * shape.outer * shape.inner;
  for (std::int64_t a = 0; a < shape.outer; ++a)
    for (std::int64_t b = 0; b < shape.inner; ++b) visit(a, b, index++);
}

template <typename T>
void forward(const Tensor& input, const Optional& weight, const Optional& bias, at::ArrayRef<double> eps, Tensor& output, Tensor& mean, Tensor& inverse_std) {
  const RowShape shape(input);
  auto *y = output.mutable_data_ptr<T>(), *m = mean.mutable_data_ptr<T>(), *d = inverse_std.mutable_data_ptr<T>();
  base::parallel_for(0, shape.lanes, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t lane = first; lane < last; ++lane)
      each_row(shape, lane, [&](std::int64_t a, std::int64_t b, std::int64_t index) {
        const T* x = row<T>(input, lane, a, b);
        moments(x, shape.n, static_cast<T>(eps[lane]), m + index, d + index);
        scale(x, parameter<T>(weight, lane), parameter<T>(bias, lane), shape.n, m[index], d[index], y + index * shape.n);
      });
  });
}

template <typename T>
void backward(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& inverse_std, const Optional& weight, Tensor& dx, Tensor& dweight,
              Tensor& dbias) {
  const RowShape shape(input);
  const auto *m = mean.const_data_ptr<T>(), *d = inverse_std.const_data_ptr<T>();
  auto *x_out = dx.defined() ? dx.mutable_data_ptr<T>() : nullptr;
  if (dweight.defined()) dweight.zero_();
  if (dbias.defined()) dbias.zero_();
  auto *w_out = dweight.defined() ? dweight.mutable_data_ptr<T>() : nullptr, *b_out = dbias.defined() ? dbias.mutable_data_ptr<T>() : nullptr;
  base::parallel_for(0, shape.lanes, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t lane = first; lane < last; ++lane)
      each_row(shape, lane, [&](std::int64_t a, std::int64_t b, std::int64_t index) {
        const T *dy = row<T>(gradient, lane, a, b), *x = row<T>(input, lane, a, b);
        if (x_out) row_gradient(dy, x, parameter<T>(weight, lane), shape.n, m[index], d[index], x_out + index * shape.n);
        add_parameters(dy, x, shape.n, m[index], d[index], w_out ? w_out + lane * shape.n : nullptr, b_out ? b_out + lane * shape.n : nullptr);
      });
  });
}

std::tuple<Tensor&, Tensor&, Tensor&> layer_norm_out(const Tensor& input, const Optional& weight, const Optional& bias, at::ArrayRef<double> eps,
                                                  Tensor& output, Tensor& mean, Tensor& inverse_std) {
  if (input.scalar_type() == at::kFloat) forward<float>(input, weight, bias, eps, output, mean, inverse_std);
  else forward<double>(input, weight, bias, eps, output, mean, inverse_std);
  return {output, mean, inverse_std};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_new(const Tensor& input, const Optional& weight, const Optional& bias, at::ArrayRef<double> eps) {
  const auto rows = input.sizes().slice(0, 3);
  auto output = at::empty(input.sizes(), input.options()), mean = at::empty(rows, input.options()), inverse_std = at::empty(rows, input.options());
  layer_norm_out(input, weight, bias, eps, output, mean, inverse_std);
  return {output, mean, inverse_std};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward_new(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& inverse_std,
                                                const Optional& weight, std::array<bool, 3> mask) {
  Tensor dx, dweight, dbias;
  if (mask[0]) dx = at::empty(input.sizes(), input.options());
  if (mask[1]) dweight = at::empty({input.size(0), input.size(3)}, input.options());
  if (mask[2]) dbias = at::empty({input.size(0), input.size(3)}, input.options());
  if (input.scalar_type() == at::kFloat) backward<float>(gradient, input, mean, inverse_std, weight, dx, dweight, dbias);
  else backward<double>(gradient, input, mean, inverse_std, weight, dx, dweight, dbias);
  return {dx, dweight, dbias};
}

std::tuple<Tensor&, Tensor&, Tensor&> layer_norm_backward_out(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& inverse_std,
                                                   const Optional& weight, std::array<bool, 3> mask, Tensor& dx, Tensor& dweight, Tensor& dbias) {
  Tensor none;
  auto &to_x = mask[0] ? dx : none, &to_weight = mask[1] ? dweight : none, &to_bias = mask[2] ? dbias : none;
  if (input.scalar_type() == at::kFloat) backward<float>(gradient, input, mean, inverse_std, weight, to_x, to_weight, to_bias);
  else backward<double>(gradient, input, mean, inverse_std, weight, to_x, to_weight, to_bias);
  return {dx, dweight, dbias};
}

}  // namespace
}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("layer_norm(Tensor input, Tensor? weight, Tensor? bias, float[] eps) -> (Tensor output, Tensor mean, Tensor inverse_std)");
  library.def(
      "layer_norm.out(Tensor input, Tensor? weight, Tensor? bias, float[] eps, *, Tensor(a!) output, Tensor(b!) mean, Tensor(c!) inverse_std) "
      "-> (Tensor(a!), Tensor(b!), Tensor(c!))");
  library.def(
      "layer_norm_backward(Tensor grad_output, Tensor input, Tensor mean, Tensor inverse_std, Tensor? weight, bool[3] output_mask) "
      "-> (Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_backward.out(Tensor grad_output, Tensor input, Tensor mean, Tensor inverse_std, Tensor? weight, bool[3] output_mask, *, "
      "Tensor(a!) grad_input, Tensor(b!) grad_weight, Tensor(c!) grad_bias) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
  library.impl("layer_norm", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::layer_norm_new));
  library.impl("layer_norm.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::layer_norm_out));
  library.impl("layer_norm_backward", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::layer_norm_backward_new));
  library.impl("layer_norm_backward.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::layer_norm_backward_out));
}
