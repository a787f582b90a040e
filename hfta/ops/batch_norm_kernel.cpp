#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "hfta/base/parallel.h"
#include "hfta/ops/vector_sums.h"

// Batch norm of all lanes on `[lanes, N, C, S]`, all passes over a channel back to back while it is in cache. Two layouts: planes (S
// contiguous) and rows (C contiguous: no S, or channels last). A lane's numbers depend on that lane alone.

namespace hfta::ops {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

template <typename T>
HFTA_INLINE void affine_of(const T* x, std::int64_t n, T factor, T offset, T* __restrict y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factor + offset;
}

/// `dx = dy * factor + (x - mean) * slope + offset`, numbers of one channel.
template <typename T>
struct Coefficients {
  T mean, factor, slope, offset;
};
template <typename T>
HFTA_INLINE void gradient_of(const T* x, const T* dy, std::int64_t n, Coefficients<T> k, T* __restrict dx) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * k.factor + (x[i] - k.mean) * k.slope + k.offset;
}

// As above for a row with one place of every channel.
template <typename T>
HFTA_INLINE void add_row_of(const T* x, std::int64_t n, T* __restrict total) {
  for (std::int64_t i = 0; i < n; ++i) total[i] += x[i];
}
template <typename T>
HFTA_INLINE void add_products_row_of(const T* x, const T* dy, std::int64_t n, const T* mean, T* __restrict total) {
  for (std::int64_t i = 0; i < n; ++i) total[i] += (x[i] - mean[i]) * dy[i];
}
template <typename T>
HFTA_INLINE void add_squares_row_of(const T* x, std::int64_t n, const T* mean, T* __restrict total) {
  for (std::int64_t i = 0; i < n; ++i) total[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
}
template <typename T>
HFTA_INLINE void affine_row_of(const T* x, std::int64_t n, const T* factor, const T* offset, T* __restrict y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factor[i] + offset[i];
}
template <typename T>
struct CoefficientRows {
  const T *mean, *factor, *slope, *offset;
};
template <typename T>
HFTA_INLINE void gradient_row_of(const T* x, const T* dy, std::int64_t n, CoefficientRows<T> k, T* __restrict dx) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * k.factor[i] + (x[i] - k.mean[i]) * k.slope[i] + k.offset[i];
}

// Function multiversioning does not go with templates.
HFTA_VECTOR_TARGETS float sum(const float* x, std::int64_t n) { return sum_of(x, n); }
HFTA_VECTOR_TARGETS double sum(const double* x, std::int64_t n) { return sum_of(x, n); }
HFTA_VECTOR_TARGETS float squares(const float* x, std::int64_t n, float mean) { return squares_of(x, n, mean); }
HFTA_VECTOR_TARGETS double squares(const double* x, std::int64_t n, double mean) { return squares_of(x, n, mean); }
HFTA_VECTOR_TARGETS float products(const float* x, const float* dy, std::int64_t n, float mean) { return products_of(x, dy, n, mean); }
HFTA_VECTOR_TARGETS double products(const double* x, const double* dy, std::int64_t n, double mean) { return products_of(x, dy, n, mean); }
HFTA_VECTOR_TARGETS void affine(const float* x, std::int64_t n, float factor, float offset, float* y) { affine_of(x, n, factor, offset, y); }
HFTA_VECTOR_TARGETS void affine(const double* x, std::int64_t n, double factor, double offset, double* y) { affine_of(x, n, factor, offset, y); }
HFTA_VECTOR_TARGETS void gradient(const float* x, const float* dy, std::int64_t n, Coefficients<float> k, float* dx) { gradient_of(x, dy, n, k, dx); }
HFTA_VECTOR_TARGETS void gradient(const double* x, const double* dy, std::int64_t n, Coefficients<double> k, double* dx) { gradient_of(x, dy, n, k, dx); }
HFTA_VECTOR_TARGETS void add_row(const float* x, std::int64_t n, float* total) { add_row_of(x, n, total); }
HFTA_VECTOR_TARGETS void add_row(const double* x, std::int64_t n, double* total) { add_row_of(x, n, total); }
HFTA_VECTOR_TARGETS void add_products_row(const float* x, const float* dy, std::int64_t n, const float* mean, float* total) { add_products_row_of(x, dy, n, mean, total); }
HFTA_VECTOR_TARGETS void add_products_row(const double* x, const double* dy, std::int64_t n, const double* mean, double* total) { add_products_row_of(x, dy, n, mean, total); }
HFTA_VECTOR_TARGETS void add_squares_row(const float* x, std::int64_t n, const float* mean, float* total) { add_squares_row_of(x, n, mean, total); }
HFTA_VECTOR_TARGETS void add_squares_row(const double* x, std::int64_t n, const double* mean, double* total) { add_squares_row_of(x, n, mean, total); }
HFTA_VECTOR_TARGETS void affine_row(const float* x, std::int64_t n, const float* factor, const float* offset, float* y) { affine_row_of(x, n, factor, offset, y); }
HFTA_VECTOR_TARGETS void affine_row(const double* x, std::int64_t n, const double* factor, const double* offset, double* y) { affine_row_of(x, n, factor, offset, y); }
HFTA_VECTOR_TARGETS void gradient_row(const float* x, const float* dy, std::int64_t n, CoefficientRows<float> k, float* dx) { gradient_row_of(x, dy, n, k, dx); }
HFTA_VECTOR_TARGETS void gradient_row(const double* x, const double* dy, std::int64_t n, CoefficientRows<double> k, double* dx) { gradient_row_of(x, dy, n, k, dx); }

/// One lane's `[N, C, S]`.
template <typename T>
struct LanePlanes {
  T* data;
  std::int64_t n, c, s, stride_n, stride_c, stride_s;
  LanePlanes(const Tensor& tensor, std::int64_t lane)
      : data(const_cast<T*>(tensor.const_data_ptr<T>()) + lane * tensor.stride(0)), n(tensor.size(1)), c(tensor.size(2)), s(tensor.size(3)),
        stride_n(tensor.stride(1)), stride_c(tensor.stride(2)), stride_s(tensor.stride(3)) {}
  T* plane(std::int64_t sample, std::int64_t channel) const { return data + sample * stride_n + channel * stride_c; }
  T* row(std::int64_t sample, std::int64_t place) const { return data + sample * stride_n + place * stride_s; }
};

bool has_rows(const Tensor& tensor) { return tensor.size(3) == 1 || tensor.stride(3) != 1; }

template <typename T>
T* of_lane(const Optional& tensor, std::int64_t lane) {
  return tensor && tensor->defined() ? const_cast<T*>(tensor->const_data_ptr<T>()) + lane * tensor->stride(0) : nullptr;
}

template <typename T, typename Visit>
void each_row(const LanePlanes<T>& x, Visit visit) {
  for (std::int64_t n = 0; n < x.n; ++n)
    for (std::int64_t s = 0; s < x.s; ++s) visit(n, s);
}

/// Mean and sum of squared deviations of a channel, or of all channels at once where they lie in rows.
template <typename T>
void statistics(const LanePlanes<T>& x, bool rows, T* mean, T* deviation) {
  const double count = static_cast<double>(x.n) * static_cast<double>(x.s);
  if (rows) {
    std::fill_n(mean, x.c, T(0)), std::fill_n(deviation, x.c, T(0));
    each_row(x, [&](std::int64_t n, std::int64_t s) { add_row(x.row(n, s), x.c, mean); });
    for (std::int64_t c = 0; c < x.c; ++c) mean[c] = static_cast<T>(mean[c] / count);
    each_row(x, [&](std::int64_t n, std::int64_t s) { add_squares_row(x.row(n, s), x.c, mean, deviation); });
    return;
  }
  for (std::int64_t c = 0; c < x.c; ++c) {
    double total = 0;
    for (std::int64_t n = 0; n < x.n; ++n) total += sum(x.plane(n, c), x.s);
    mean[c] = static_cast<T>(total / count);
    total = 0;
    for (std::int64_t n = 0; n < x.n; ++n) total += squares(x.plane(n, c), x.s, mean[c]);
    deviation[c] = static_cast<T>(total);
  }
}

template <typename T>
struct BatchNormJob {
  const Tensor &input, &output, &mean, &inverse_std;
  const Optional &weight, &bias, &running_mean, &running_var;
  bool training;
  at::ArrayRef<double> momentum, eps;

  void run(std::int64_t lane) const {
    const LanePlanes<T> x(input, lane), y(output, lane);
    const bool rows = has_rows(input);
    const double count = static_cast<double>(x.n) * static_cast<double>(x.s);
    std::vector<T> center(x.c), factor(x.c), offset(x.c);
    if (training) statistics(x, rows, center.data(), factor.data());
    T *running = of_lane<T>(running_mean, lane), *spread = of_lane<T>(running_var, lane);
    for (std::int64_t c = 0; c < x.c; ++c) {
      const double deviation = training ? factor[c] : 0;
      if (!training) center[c] = running[c];
      const T inverse = static_cast<T>(1 / std::sqrt((training ? deviation / count : static_cast<double>(spread[c])) + eps[lane]));
      if (training) {
        of_lane<T>(mean, lane)[c] = center[c], of_lane<T>(inverse_std, lane)[c] = inverse;
        const double m = momentum[lane];
        if (running) running[c] = static_cast<T>(m * center[c] + (1 - m) * running[c]);
        if (spread) spread[c] = static_cast<T>(m * (deviation / (count - 1)) + (1 - m) * spread[c]);
      }
      const T *w = of_lane<T>(weight, lane), *b = of_lane<T>(bias, lane);
      factor[c] = inverse * (w ? w[c] : T(1));
      offset[c] = (b ? b[c] : T(0)) - center[c] * factor[c];
    }
    if (rows) {
      each_row(x, [&](std::int64_t n, std::int64_t s) { affine_row(x.row(n, s), x.c, factor.data(), offset.data(), y.row(n, s)); });
      return;
    }
    for (std::int64_t c = 0; c < x.c; ++c)
      for (std::int64_t n = 0; n < x.n; ++n) affine(x.plane(n, c), x.s, factor[c], offset[c], y.plane(n, c));
  }
};

template <typename T>
struct BatchNormGradientJob {
  const Tensor &grad_output, &input, &mean, &spread;
  const Optional &weight, &grad_input, &grad_weight, &grad_bias;
  bool training;
  at::ArrayRef<double> eps;

  void run(std::int64_t lane) const {
    const LanePlanes<T> dy(grad_output, lane), x(input, lane);
    const bool rows = has_rows(input);
    const T *center = of_lane<T>(mean, lane), *deviation = of_lane<T>(spread, lane), *w = of_lane<T>(weight, lane);
    std::vector<T> total(x.c), projected(x.c);
    sums(dy, x, rows, center, total.data(), projected.data());
    std::vector<T> factor(x.c), slope(x.c), offset(x.c);
    const double count = static_cast<double>(x.n) * static_cast<double>(x.s);
    for (std::int64_t c = 0; c < x.c; ++c) {
      const T inverse = training ? deviation[c] : static_cast<T>(1 / std::sqrt(static_cast<double>(deviation[c]) + eps[lane]));
      if (T* out = of_lane<T>(grad_weight, lane)) out[c] = projected[c] * inverse;
      if (T* out = of_lane<T>(grad_bias, lane)) out[c] = total[c];
      factor[c] = inverse * (w ? w[c] : T(1));
      slope[c] = training ? static_cast<T>(-factor[c] * (projected[c] * inverse * inverse / count)) : T(0);
      offset[c] = training ? static_cast<T>(-factor[c] * (total[c] / count)) : T(0);
    }
    if (!grad_input || !grad_input->defined()) return;
    const LanePlanes<T> dx(*grad_input, lane);
    if (rows) {
      each_row(x, [&](std::int64_t n, std::int64_t s) {
        gradient_row(x.row(n, s), dy.row(n, s), x.c, CoefficientRows<T>{center, factor.data(), slope.data(), offset.data()}, dx.row(n, s));
      });
      return;
    }
    for (std::int64_t c = 0; c < x.c; ++c)
      for (std::int64_t n = 0; n < x.n; ++n) gradient(x.plane(n, c), dy.plane(n, c), x.s, Coefficients<T>{center[c], factor[c], slope[c], offset[c]}, dx.plane(n, c));
  }

  /// Sums of the gradient and of its products with the deviations, per channel.
  static void sums(const LanePlanes<T>& dy, const LanePlanes<T>& x, bool rows, const T* center, T* total, T* projected) {
    if (rows) {
      std::fill_n(total, x.c, T(0)), std::fill_n(projected, x.c, T(0));
      each_row(x, [&](std::int64_t n, std::int64_t s) {
        add_row(dy.row(n, s), x.c, total);
        add_products_row(x.row(n, s), dy.row(n, s), x.c, center, projected);
      });
      return;
    }
    for (std::int64_t c = 0; c < x.c; ++c) {
      double all = 0, products_of_all = 0;
      for (std::int64_t n = 0; n < x.n; ++n) {
        all += sum(dy.plane(n, c), x.s);
        products_of_all += products(x.plane(n, c), dy.plane(n, c), x.s, center[c]);
      }
      total[c] = static_cast<T>(all), projected[c] = static_cast<T>(products_of_all);
    }
  }
};

template <typename Job>
void over_lanes(std::int64_t lanes, const Job& job) {
  base::parallel_for(0, lanes, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t lane = first; lane < last; ++lane) job.run(lane);
  });
}

void batch_norm_(const Tensor& input, const Optional& weight, const Optional& bias, const Optional& running_mean, const Optional& running_var,
                 bool training, at::ArrayRef<double> momentum, at::ArrayRef<double> eps, const Tensor& output, const Tensor& mean,
                 const Tensor& inverse_std) {
  const auto run = [&]<typename T>(T) {
    over_lanes(input.size(0), BatchNormJob<T>{input, output, mean, inverse_std, weight, bias, running_mean, running_var, training, momentum, eps});
  };
  if (input.scalar_type() == at::kFloat) run(float());
  else run(double());
}

void batch_norm_backward_(const Tensor& grad_output, const Tensor& input, const Optional& weight, const Tensor& mean, const Tensor& spread,
                          bool training, at::ArrayRef<double> eps, const Optional& grad_input, const Optional& grad_weight, const Optional& grad_bias) {
  const auto run = [&]<typename T>(T) {
    over_lanes(input.size(0), BatchNormGradientJob<T>{grad_output, input, mean, spread, weight, grad_input, grad_weight, grad_bias, training, eps});
  };
  if (input.scalar_type() == at::kFloat) run(float());
  else run(double());
}

}  // namespace
}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def(
      "batch_norm_(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, bool training, float[] momentum, "
      "float[] eps, Tensor(c!) output, Tensor(d!) mean, Tensor(e!) inverse_std) -> ()");
  // `spread` is the inverse deviation in training, the running variance otherwise.
  library.def(
      "batch_norm_backward_(Tensor grad_output, Tensor input, Tensor? weight, Tensor mean, Tensor spread, bool training, float[] eps, "
      "Tensor(a!)? grad_input, Tensor(b!)? grad_weight, Tensor(c!)? grad_bias) -> ()");
  library.impl("batch_norm_", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::batch_norm_));
  library.impl("batch_norm_backward_", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::batch_norm_backward_));
}
