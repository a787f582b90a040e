#include "hfta/ops/max_pool2d.h"

#include <ATen/native/Pool.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/max_pool2d_kernel.h"

namespace hfta::ops {
namespace {

/// Outputs below which a thread of its own costs more than it saves.
constexpr std::int64_t kOutputsPerThread = 16384;

void read_pair(at::IntArrayRef values, std::int64_t (&pair)[2], const char* what) {
  HFTA_CHECK(values.size() == 1 || values.size() == 2, "ops::max_pool2d: expected one or two numbers for ", what, ", got ", values.size());
  pair[0] = values[0];
  pair[1] = values.back();
}

MaxPool2dShape pooled_shape(const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                            at::IntArrayRef dilation, bool ceil_mode) {
  HFTA_CHECK(input.dim() == 3 || input.dim() == 4, "ops::max_pool2d: expected images of 3 or 4 dimensions, got ", input.dim());
  MaxPool2dShape s{};
  read_pair(kernel, s.kernel, "kernel_size");
  read_pair(stride.empty() ? kernel : stride, s.stride, "stride");
  read_pair(padding, s.padding, "padding");
  read_pair(dilation, s.dilation, "dilation");
  s.height = input.size(-2);
  s.width = input.size(-1);
  const auto out = [&](int axis, std::int64_t size) {
    return at::native::pooling_output_shape(size, s.kernel[axis], s.padding[axis], s.stride[axis], s.dilation[axis], ceil_mode);
  };
  s.out_height = out(0, s.height);
  s.out_width = out(1, s.width);
  at::native::pool2d_shape_check(input, s.kernel[0], s.kernel[1], s.stride[0], s.stride[1], s.padding[0], s.padding[1], s.dilation[0],
                                 s.dilation[1], input.size(-3), s.height, s.width, s.out_height, s.out_width, input.suggest_memory_format());
  return s;
}

/// LibTorch's own kernel is as fast on channels-last images, and the only one for other types.
bool is_ours(const at::Tensor& input) { return max_pool2d_takes(input) && input.is_contiguous(); }

std::vector<std::int64_t> pooled_sizes(const at::Tensor& input, const MaxPool2dShape& shape) {
  auto sizes = input.sizes().vec();
  sizes[sizes.size() - 2] = shape.out_height;
  sizes[sizes.size() - 1] = shape.out_width;
  return sizes;
}

template <typename T>
void run_forward(const at::Tensor& input, const at::Tensor& output, const at::Tensor& indices, const MaxPool2dShape& shape) {
  const auto size = shape.height * shape.width, out_size = shape.out_height * shape.out_width;
  const auto planes = input.numel() / size;
  const auto* const from = input.const_data_ptr<T>();
  auto* const to = output.mutable_data_ptr<T>();
  auto* const positions = indices.mutable_data_ptr<std::int64_t>();
  base::parallel_for(0, planes, std::max<std::int64_t>(1, kOutputsPerThread / out_size), [&](std::int64_t begin, std::int64_t end) {
    max_pool2d_planes(from + begin * size, to + begin * out_size, positions + begin * out_size, end - begin, (planes - begin) * size, shape);
  });
}

template <typename T>
void run_backward(const at::Tensor& grad_output, const at::Tensor& indices, const at::Tensor& grad_input, const MaxPool2dShape& shape) {
  const auto size = shape.height * shape.width, out_size = shape.out_height * shape.out_width;
  const auto* const from = grad_output.const_data_ptr<T>();
  const auto* const positions = indices.const_data_ptr<std::int64_t>();
  auto* const to = grad_input.mutable_data_ptr<T>();
  base::parallel_for(0, grad_input.numel() / size, std::max<std::int64_t>(1, kOutputsPerThread / out_size), [&](std::int64_t begin, std::int64_t end) {
    max_pool2d_planes_backward(from + begin * out_size, positions + begin * out_size, to + begin * size, end - begin, shape);
  });
}

bool ready(const at::Tensor& out, at::IntArrayRef sizes, at::ScalarType type) {
  return out.is_contiguous() && out.sizes() == sizes && out.scalar_type() == type;
}

std::tuple<at::Tensor&, at::Tensor&> forward_out(const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                                                 at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode, at::Tensor& out,
                                                 at::Tensor& indices) {
  const auto shape = pooled_shape(input, kernel, stride, padding, dilation, ceil_mode);
  const auto sizes = pooled_sizes(input, shape);
  if (!is_ours(input) || !ready(out, sizes, input.scalar_type()) || !ready(indices, sizes, at::kLong)) {
    return at::max_pool2d_with_indices_out(out, indices, input, kernel, stride, padding, dilation, ceil_mode);
  }
  if (input.numel() == 0) return {out, indices};
  input.scalar_type() == at::kFloat ? run_forward<float>(input, out, indices, shape) : run_forward<double>(input, out, indices, shape);
  return {out, indices};
}

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                                           at::IntArrayRef dilation, bool ceil_mode) {
  if (!is_ours(input)) return at::max_pool2d_with_indices(input, kernel, stride, padding, dilation, ceil_mode);
  const auto sizes = pooled_sizes(input, pooled_shape(input, kernel, stride, padding, dilation, ceil_mode));
  auto out = at::empty(sizes, input.options()), indices = at::empty(sizes, input.options().dtype(at::kLong));
  forward_out(input, kernel, stride, padding, dilation, ceil_mode, out, indices);
  return {out, indices};
}

at::Tensor& backward_out(const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                         at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode, const at::Tensor& indices, at::Tensor& grad_input) {
  const auto shape = pooled_shape(input, kernel, stride, padding, dilation, ceil_mode);
  const auto sizes = pooled_sizes(input, shape);
  if (!is_ours(input) || !ready(grad_input, input.sizes(), input.scalar_type()) || !ready(indices, sizes, at::kLong) ||
      grad_output.sizes() != sizes || grad_output.scalar_type() != input.scalar_type()) {
    return at::max_pool2d_with_indices_backward_out(grad_input, grad_output, input, kernel, stride, padding, dilation, ceil_mode, indices);
  }
  if (input.numel() == 0) return grad_input;
  const auto dense = grad_output.contiguous();
  input.scalar_type() == at::kFloat ? run_backward<float>(dense, indices, grad_input, shape) : run_backward<double>(dense, indices, grad_input, shape);
  return grad_input;
}

at::Tensor backward(const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef kernel, at::IntArrayRef stride,
                    at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode, const at::Tensor& indices) {
  if (!is_ours(input)) {
    return at::max_pool2d_with_indices_backward(grad_output, input, kernel, stride, padding, dilation, ceil_mode, indices);
  }
  auto grad_input = at::empty(input.sizes(), input.options());
  return backward_out(grad_output, input, kernel, stride, padding, dilation, ceil_mode, indices, grad_input);
}

}  // namespace

bool max_pool2d_takes(const at::Tensor& input) {
  const bool fits = input.dim() >= 2 && input.size(-1) * input.size(-2) < std::numeric_limits<std::int32_t>::max();
  return fits && input.is_cpu() && (input.scalar_type() == at::kFloat || input.scalar_type() == at::kDouble);
}

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, "
              "bool ceil_mode=False) -> (Tensor, Tensor)");
  library.def("max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, "
              "bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))");
  library.def("max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, "
              "int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor");
  library.def("max_pool2d_with_indices_backward.grad_input(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, "
              "int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices, *, Tensor(a!) grad_input) -> Tensor(a!)");
  library.impl("max_pool2d_with_indices", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward));
  library.impl("max_pool2d_with_indices.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward_out));
  library.impl("max_pool2d_with_indices_backward", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::backward));
  library.impl("max_pool2d_with_indices_backward.grad_input", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::backward_out));
}
