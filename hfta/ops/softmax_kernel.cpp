#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "hfta/base/parallel.h"
#include "hfta/ops/softmax.h"
#include "hfta/ops/turned_rows.h"
#include "hfta/ops/vector_math.h"

// Softmax of contiguous rows of few classes: blocks of rows are turned so that vectors run across rows.

namespace hfta::ops {
namespace {

using at::Tensor;

enum class SoftmaxKind { Plain, Log, Safe };

template <typename T>
HFTA_INLINE void softmax_of_turned(TurnedRows<T>& block, std::int64_t classes, SoftmaxKind kind) {
  using Vector = typename Wide<T>::Vector;
  Vector largest = block.values[0], sum{};
  for (std::int64_t c = 1; c < classes; ++c) largest = larger<T>(block.values[c], largest);
  if (kind == SoftmaxKind::Safe)  // a row of -inf gives zeros: exp(-inf) each, and no division by their sum
    largest = largest == -std::numeric_limits<T>::infinity() ? Vector{} : largest;
  for (std::int64_t c = 0; c < classes; ++c) {
    const Vector below = block.values[c] - largest, power = exp_of_negative<T>(below);
    block.values[c] = kind == SoftmaxKind::Log ? below : power;
    sum += power;
  }
  if (kind == SoftmaxKind::Log) {
    sum = log_of_sum<T>(sum);
    for (std::int64_t c = 0; c < classes; ++c) block.values[c] -= sum;
    return;
  }
  if (kind == SoftmaxKind::Safe) sum = sum == T(0) ? Vector{} + T(1) : sum;
  for (std::int64_t c = 0; c < classes; ++c) block.values[c] /= sum;
}

template <typename T>
HFTA_INLINE void softmax_rows_of(const T* x, std::int64_t rows, std::int64_t classes, SoftmaxKind kind, T* y) {
  TurnedRows<T> block;
  for (std::int64_t r = 0; r < rows; r += block.kRows) {
    const auto count = std::min(block.kRows, rows - r);
    block.load(x + r * classes, count, classes, (rows - r) * classes);
    softmax_of_turned(block, classes, kind);
    block.store(y + r * classes, count, classes);
  }
}

/// `g - exp(y) * sum(g)` for the logarithm, `(g - sum(g * y)) * y` otherwise.
template <typename T>
HFTA_INLINE void gradient_of_turned(TurnedRows<T>& g, const TurnedRows<T>& y, std::int64_t classes, bool log) {
  typename Wide<T>::Vector sum{};
  for (std::int64_t c = 0; c < classes; ++c) sum += log ? g.values[c] : g.values[c] * y.values[c];
  for (std::int64_t c = 0; c < classes; ++c)
    g.values[c] = log ? g.values[c] - exp_of_negative<T>(y.values[c]) * sum : (g.values[c] - sum) * y.values[c];
}

template <typename T>
HFTA_INLINE void softmax_gradient_rows_of(const T* g, const T* y, std::int64_t rows, std::int64_t classes, bool log, T* dx) {
  TurnedRows<T> gradient, output;
  for (std::int64_t r = 0; r < rows; r += gradient.kRows) {
    const auto count = std::min(gradient.kRows, rows - r);
    gradient.load(g + r * classes, count, classes, (rows - r) * classes);
    output.load(y + r * classes, count, classes, (rows - r) * classes);
    gradient_of_turned(gradient, output, classes, log);
    gradient.store(dx + r * classes, count, classes);
  }
}

// Function multiversioning does not go with templates.
HFTA_VECTOR_TARGETS void softmax_rows(const float* x, std::int64_t rows, std::int64_t classes, SoftmaxKind kind, float* y) {
  softmax_rows_of(x, rows, classes, kind, y);
}
HFTA_VECTOR_TARGETS void softmax_rows(const double* x, std::int64_t rows, std::int64_t classes, SoftmaxKind kind, double* y) {
  softmax_rows_of(x, rows, classes, kind, y);
}
HFTA_VECTOR_TARGETS void gradient_rows(const float* g, const float* y, std::int64_t rows, std::int64_t classes, bool log, float* dx) {
  softmax_gradient_rows_of(g, y, rows, classes, log, dx);
}
HFTA_VECTOR_TARGETS void gradient_rows(const double* g, const double* y, std::int64_t rows, std::int64_t classes, bool log, double* dx) {
  softmax_gradient_rows_of(g, y, rows, classes, log, dx);
}

template <typename Visit>
void over_rows(const Tensor& tensor, Visit visit) {
  const auto classes = tensor.size(-1), rows = tensor.numel() / classes;
  TORCH_CHECK(classes <= kMostClasses, "hfta::softmax: expected at most ", kMostClasses, " classes, got ", classes);
  base::parallel_for(0, rows, std::max<std::int64_t>(1, 16384 / classes), [&](std::int64_t first, std::int64_t last) { visit(first, last - first, classes); });
}

template <SoftmaxKind kind>
Tensor& softmax_out(const Tensor& self, Tensor& out) {
  const auto run = [&]<typename T>(T) {
    const T* x = self.const_data_ptr<T>();
    T* y = out.mutable_data_ptr<T>();
    over_rows(self, [&](std::int64_t first, std::int64_t rows, std::int64_t classes) { softmax_rows(x + first * classes, rows, classes, kind, y + first * classes); });
  };
  if (self.scalar_type() == at::kFloat) run(float());
  else run(double());
  return out;
}

template <SoftmaxKind kind>
Tensor softmax_new(const Tensor& self) {
  auto out = at::empty(self.sizes(), self.options());
  return softmax_out<kind>(self, out);
}

Tensor& softmax_backward_out(const Tensor& gradient, const Tensor& output, bool log, Tensor& grad_input) {
  const auto run = [&]<typename T>(T) {
    const T *g = gradient.const_data_ptr<T>(), *y = output.const_data_ptr<T>();
    T* dx = grad_input.mutable_data_ptr<T>();
    over_rows(output, [&](std::int64_t first, std::int64_t rows, std::int64_t classes) {
      gradient_rows(g + first * classes, y + first * classes, rows, classes, log, dx + first * classes);
    });
  };
  if (output.scalar_type() == at::kFloat) run(float());
  else run(double());
  return grad_input;
}

Tensor softmax_backward_new(const Tensor& gradient, const Tensor& output, bool log) {
  auto grad_input = at::empty(output.sizes(), output.options());
  return softmax_backward_out(gradient, output, log, grad_input);
}

}  // namespace
}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  // Contiguous tensors, along a last dimension of at most kMostClasses.
  for (const char* name : {"softmax", "log_softmax", "safe_softmax"}) {
    library.def((std::string(name) + "(Tensor self) -> Tensor").c_str());
    library.def((std::string(name) + ".out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)").c_str());
  }
  library.def("softmax_backward(Tensor grad_output, Tensor output, bool log) -> Tensor");
  library.def("softmax_backward.out(Tensor grad_output, Tensor output, bool log, *, Tensor(a!) grad_input) -> Tensor(a!)");
  using Kind = hfta::ops::SoftmaxKind;
  library.impl("softmax", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_new<Kind::Plain>));
  library.impl("softmax.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_out<Kind::Plain>));
  library.impl("log_softmax", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_new<Kind::Log>));
  library.impl("log_softmax.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_out<Kind::Log>));
  library.impl("safe_softmax", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_new<Kind::Safe>));
  library.impl("safe_softmax.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_out<Kind::Safe>));
  library.impl("softmax_backward", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_backward_new));
  library.impl("softmax_backward.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::softmax_backward_out));
}
