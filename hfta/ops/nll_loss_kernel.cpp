#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace hfta::ops {
namespace {

/// `[lanes, N, C, S]` and what goes with it, as pointers and strides.
template <typename T>
struct StridedView {
  T* data = nullptr;
  std::int64_t strides[4] = {};
  StridedView() = default;
  explicit StridedView(const at::Tensor& tensor) : data(const_cast<T*>(tensor.const_data_ptr<T>())) {
    for (std::int64_t i = 0; i < tensor.dim(); ++i) strides[i] = tensor.stride(i);
  }
  template <typename... Index>
  T& at(Index... index) const {
    std::int64_t offset = 0, axis = 0;
    ((offset += index * strides[axis++]), ...);
    return data[offset];
  }
};

std::int64_t checked_class(std::int64_t target, std::int64_t classes) {
  TORCH_CHECK_INDEX(target >= 0 && target < classes, "Target ", target, " is out of bounds.");
  return target;
}

struct NllShape {
  std::int64_t lanes, samples, classes, places, reduction, ignored;
};

NllShape shape_of(const at::Tensor& self, std::int64_t reduction, std::int64_t ignored) {
  return {self.size(0), self.size(1), self.size(2), self.size(3), reduction, ignored};
}

/// Calls `visit(n, s, class)` for each target of the lane that counts.
template <typename Visit>
void each_target(const NllShape& shape, const StridedView<std::int64_t>& target, std::int64_t lane, Visit visit) {
  for (std::int64_t n = 0; n < shape.samples; ++n)
    for (std::int64_t s = 0; s < shape.places; ++s)
      if (const auto t = target.at(lane, n, s); t != shape.ignored) visit(n, s, checked_class(t, shape.classes));
}

template <typename T>
void forward(const NllShape& shape, const StridedView<T>& self, const StridedView<std::int64_t>& target, const std::optional<StridedView<T>>& weight, at::Tensor& output,
             at::Tensor& total_weight) {
  const StridedView<T> out(output), totals(total_weight);
  if (shape.reduction == at::Reduction::None) output.zero_();
  for (std::int64_t lane = 0; lane < shape.lanes; ++lane) {
    // Sums in double: as good as LibTorch's cascade, and one kernel for all sizes.
    double sum = 0, total = 0;
    each_target(shape, target, lane, [&](std::int64_t n, std::int64_t s, std::int64_t c) {
      const T w = weight ? weight->at(lane, c) : T(1), loss = -w * self.at(lane, n, c, s);
      if (shape.reduction == at::Reduction::None) out.at(lane, n, s) = loss;
      sum += loss;
      total += w;
    });
    if (shape.reduction == at::Reduction::None) total = 0;  // as LibTorch's
    totals.at(lane) = static_cast<T>(total);
    if (shape.reduction == at::Reduction::Sum) out.at(lane) = static_cast<T>(sum);
    if (shape.reduction == at::Reduction::Mean) out.at(lane) = static_cast<T>(sum / total);
  }
}

template <typename T>
void backward(const NllShape& shape, const StridedView<T>& gradient, const StridedView<std::int64_t>& target, const std::optional<StridedView<T>>& weight,
              const at::Tensor& total_weight, at::Tensor& grad_input) {
  const StridedView<T> out(grad_input), totals(total_weight);
  grad_input.zero_();
  for (std::int64_t lane = 0; lane < shape.lanes; ++lane) {
    const bool whole = shape.reduction != at::Reduction::None;
    T factor = whole ? -gradient.at(lane) : T(0);
    if (shape.reduction == at::Reduction::Mean) factor /= totals.at(lane);
    each_target(shape, target, lane, [&](std::int64_t n, std::int64_t s, std::int64_t c) {
      const T w = weight ? weight->at(lane, c) : T(1);
      out.at(lane, n, c, s) = w * (whole ? factor : -gradient.at(lane, n, s));
    });
  }
}

template <typename T>
std::optional<StridedView<T>> optional_view(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional(StridedView<T>(*tensor)) : std::nullopt;
}

std::vector<std::int64_t> output_sizes(const at::Tensor& self, std::int64_t reduction) {
  if (reduction == at::Reduction::None) return {self.size(0), self.size(1), self.size(3)};
  return {self.size(0)};
}

std::tuple<at::Tensor&, at::Tensor&> nll_loss_out(const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
                                                 std::int64_t reduction, std::int64_t ignored, at::Tensor& output, at::Tensor& total_weight) {
  const auto shape = shape_of(self, reduction, ignored);
  output.resize_(output_sizes(self, reduction));
  total_weight.resize_({self.size(0)});
  const StridedView<std::int64_t> targets(target);
  if (self.scalar_type() == at::kFloat) forward<float>(shape, StridedView<float>(self), targets, optional_view<float>(weight), output, total_weight);
  else forward<double>(shape, StridedView<double>(self), targets, optional_view<double>(weight), output, total_weight);
  return {output, total_weight};
}

std::tuple<at::Tensor, at::Tensor> nll_loss_new(const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
                                               std::int64_t reduction, std::int64_t ignored) {
  auto output = at::empty(output_sizes(self, reduction), self.options()), total_weight = at::empty({self.size(0)}, self.options());
  nll_loss_out(self, target, weight, reduction, ignored, output, total_weight);
  return {output, total_weight};
}

at::Tensor& nll_loss_backward_out(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
                         std::int64_t reduction, std::int64_t ignored, const at::Tensor& total_weight, at::Tensor& grad_input) {
  const auto shape = shape_of(self, reduction, ignored);
  grad_input.resize_(self.sizes());
  const StridedView<std::int64_t> targets(target);
  if (self.scalar_type() == at::kFloat)
    backward<float>(shape, StridedView<float>(gradient), targets, optional_view<float>(weight), total_weight, grad_input);
  else backward<double>(shape, StridedView<double>(gradient), targets, optional_view<double>(weight), total_weight, grad_input);
  return grad_input;
}

at::Tensor nll_loss_backward_new(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
                        std::int64_t reduction, std::int64_t ignored, const at::Tensor& total_weight) {
  auto grad_input = at::empty(self.sizes(), self.options());
  return nll_loss_backward_out(gradient, self, target, weight, reduction, ignored, total_weight, grad_input);
}

}  // namespace
}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  // self `[lanes, N, C, S]`, target `[lanes, N, S]`, weight `[lanes, C]`, any strides.
  library.def("nll_loss(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor output, Tensor total_weight)");
  library.def(
      "nll_loss.out(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, *, Tensor(a!) output, Tensor(b!) total_weight) "
      "-> (Tensor(a!), Tensor(b!))");
  library.def(
      "nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, Tensor total_weight) -> Tensor");
  library.def(
      "nll_loss_backward.out(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, Tensor total_weight, *, "
      "Tensor(a!) grad_input) -> Tensor(a!)");
  library.impl("nll_loss", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::nll_loss_new));
  library.impl("nll_loss.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::nll_loss_out));
  library.impl("nll_loss_backward", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::nll_loss_backward_new));
  library.impl("nll_loss_backward.out", c10::DispatchKey::CPU, TORCH_FN(hfta::ops::nll_loss_backward_out));
}
