#include "hfta/ops/rectified_pool.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"
#include "hfta/ops/arguments.h"
#include "hfta/ops/rectified_pool_kernel.h"
#include "hfta/ops/register.h"

// What `lanes::merged` makes of a ReLU and the max pooling behind it. With the bits of the operators apart.

namespace hfta::ops {
namespace {

/// Outputs below which a thread of its own costs more than it saves.
constexpr std::int64_t kOutputsPerThread = 16384;

std::vector<std::int64_t> with_last(at::IntArrayRef sizes, std::int64_t height, std::int64_t width) {
  auto all = sizes.vec();
  all[all.size() - 2] = height;
  all[all.size() - 1] = width;
  return all;
}

/// Runs `work(first plane, planes, type)` for all planes.
template <typename Work>
void each_part(const at::Tensor& images, const RectifiedPoolShape& shape, const Work& work) {
  const auto outputs = std::max<std::int64_t>(1, shape.out_height() * shape.out_width());
  base::parallel_for(0, images.numel() / (shape.height * shape.width), std::max<std::int64_t>(1, kOutputsPerThread / outputs),
                   [&](std::int64_t begin, std::int64_t end) { images.scalar_type() == at::kFloat ? work(begin, end - begin, float()) : work(begin, end - begin, double()); });
}

std::tuple<at::Tensor&, at::Tensor&> forward_out(const at::Tensor& input, at::Tensor& out, at::Tensor& which) {
  const RectifiedPoolShape shape{input.size(-2), input.size(-1)};
  const auto sizes = with_last(input.sizes(), shape.out_height(), shape.out_width());
  HFTA_CHECK(out.is_contiguous() && which.is_contiguous() && out.sizes() == sizes && which.sizes() == sizes, "ops::rectified_max_pool2d: expected contiguous results of ",
             at::IntArrayRef(sizes), ", got ", out.sizes());
  if (out.numel() == 0) return {out, which};
  const auto images = input.contiguous();
  const auto size = shape.height * shape.width, out_size = shape.out_height() * shape.out_width();
  each_part(images, shape, [&]<typename T>(std::int64_t first, std::int64_t planes, T) {
    rectified_pool(images.const_data_ptr<T>() + first * size, out.mutable_data_ptr<T>() + first * out_size, which.mutable_data_ptr<std::uint8_t>() + first * out_size,
                   planes, images.numel() - first * size, shape);
  });
  return {out, which};
}

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& input) {
  const auto sizes = with_last(input.sizes(), input.size(-2) / 2, input.size(-1) / 2);
  auto out = at::empty(sizes, input.options()), which = at::empty(sizes, input.options().dtype(at::kByte));
  forward_out(input, out, which);
  return {out, which};
}

at::Tensor& backward_out(const at::Tensor& grad_output, const at::Tensor& which, at::IntArrayRef size, at::Tensor& grad_input) {
  const RectifiedPoolShape shape{size[0], size[1]};
  const auto sizes = with_last(which.sizes(), size[0], size[1]);
  HFTA_CHECK(grad_input.is_contiguous() && grad_input.sizes() == sizes, "ops::rectified_max_pool2d: expected a contiguous gradient of ", at::IntArrayRef(sizes), ", got ",
             grad_input.sizes());
  if (grad_input.numel() == 0) return grad_input;
  const auto gradients = grad_output.contiguous();
  const auto plane = shape.height * shape.width, out_size = shape.out_height() * shape.out_width();
  each_part(grad_input, shape, [&]<typename T>(std::int64_t first, std::int64_t planes, T) {
    rectified_pool_backward(gradients.const_data_ptr<T>() + first * out_size, which.const_data_ptr<std::uint8_t>() + first * out_size,
                            grad_input.mutable_data_ptr<T>() + first * plane, planes, shape);
  });
  return grad_input;
}

at::Tensor backward(const at::Tensor& grad_output, const at::Tensor& which, at::IntArrayRef size) {
  auto grad_input = at::empty(with_last(which.sizes(), size[0], size[1]), grad_output.options());
  return backward_out(grad_output, which, size, grad_input);
}

/// `(Tensor self)`: lanes are more images.
std::optional<std::vector<LaneValue>> forward_rule(const RuleContext& context, std::span<const LaneValue> values) {
  const auto [out, which] = rectified_max_pool2d(Arguments(context, values).lanes_first(0));
  return std::vector<LaneValue>{LaneTensor{out, 0}, LaneTensor{which, 0}};
}

/// `(Tensor grad_output, Tensor which, int[2] size)`
std::optional<std::vector<LaneValue>> backward_rule(const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  return std::vector<LaneValue>{LaneTensor{rectified_max_pool2d_backward(arguments.lanes_first(0), arguments.lanes_first(1).contiguous(), arguments.integers(2)), 0}};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> rectified_max_pool2d(const at::Tensor& images) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::rectified_max_pool2d", "").typed<decltype(forward)>();
  return op.call(images);
}

at::Tensor rectified_max_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& which, at::IntArrayRef size) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::rectified_max_pool2d_backward", "").typed<decltype(backward)>();
  return op.call(grad_output, which, size);
}

void register_rectified_pool_rules() {
  add_rules({"hfta::rectified_max_pool2d", {{"images", forward_rule}}});
  add_rules({"hfta::rectified_max_pool2d_backward", {{"images", backward_rule}}});
}

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("rectified_max_pool2d(Tensor self) -> (Tensor, Tensor)");
  library.def("rectified_max_pool2d.out(Tensor self, *, Tensor(a!) out, Tensor(b!) which) -> (Tensor(a!), Tensor(b!))");
  library.def("rectified_max_pool2d_backward(Tensor grad_output, Tensor which, int[2] size) -> Tensor");
  library.def("rectified_max_pool2d_backward.grad_input(Tensor grad_output, Tensor which, int[2] size, *, Tensor(a!) grad_input) -> Tensor(a!)");
  library.impl("rectified_max_pool2d", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward));
  library.impl("rectified_max_pool2d.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::forward_out));
  library.impl("rectified_max_pool2d_backward", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::backward));
  library.impl("rectified_max_pool2d_backward.grad_input", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::backward_out));
}
