#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/huber_loss_backward.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mse_loss_backward.h>
#include <ATen/ops/smooth_l1_loss_backward.h>
#include <ATen/ops/soft_margin_loss_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>

#include <numeric>

#include "hfta/ops/arguments.h"
#include "hfta/ops/elementwise.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using at::Tensor;
using Results = std::optional<std::vector<LaneValue>>;

Results one(const Tensor& tensor) { return std::vector<LaneValue>{LaneTensor{tensor, 0}}; }

/// Each lane's losses `[lanes, ...]` reduced by itself.
Tensor reduced(const Tensor& losses, std::int64_t reduction) {
  if (reduction == at::Reduction::None || losses.dim() == 1) return losses;
  std::vector<std::int64_t> axes(losses.dim() - 1);
  std::iota(axes.begin(), axes.end(), 1);
  return reduction == at::Reduction::Mean ? losses.mean(axes) : losses.sum(axes);
}

/// `(grad_output, self, target, reduction)` with the lanes first; a mean's gradient already divided by the lane's elements.
struct LossGradient {
  Tensor grad, self, target;

  explicit LossGradient(const Arguments& arguments) {
    const auto values = {std::optional(arguments.required(0)), std::optional(arguments.required(1)), std::optional(arguments.required(2))};
    auto tensors = aligned(std::vector(values), arguments.lanes());
    self = arguments.lanes_first(1), target = arguments.lanes_first(2), grad = tensors[0];
    if (arguments.plain(3).toInt() == at::Reduction::Mean) grad = grad.mul(1.0 / static_cast<double>(self.numel() / arguments.lanes()));
  }
};

Results mse_backward(const Arguments& arguments) {
  const LossGradient b(arguments);
  return one(at::mse_loss_backward(b.grad, b.self, b.target, at::Reduction::Sum));
}

Results soft_margin_backward(const Arguments& arguments) {
  const LossGradient b(arguments);
  return one(at::soft_margin_loss_backward(b.grad, b.self, b.target, at::Reduction::Sum));
}

/// A number per lane, `[lanes, 1, ...]` beside a tensor.
Tensor number_beside(const Arguments& arguments, std::size_t index, const Tensor& tensor) {
  return number_tensor(arguments.numbers(index), tensor.dim(), tensor.scalar_type(), tensor.device());
}

Results smooth_l1_backward(const Arguments& arguments) {
  const LossGradient b(arguments);
  if (!arguments.differs(4)) return one(at::smooth_l1_loss_backward(b.grad, b.self, b.target, at::Reduction::Sum, arguments.number(4, 0).toDouble()));
  return one(at::clamp((b.self - b.target) / number_beside(arguments, 4, b.self), -1, 1) * b.grad);
}

Results huber_backward(const Arguments& arguments) {
  const LossGradient b(arguments);
  if (!arguments.differs(4)) return one(at::huber_loss_backward(b.grad, b.self, b.target, at::Reduction::Sum, arguments.number(4, 0).toDouble()));
  const auto delta = number_beside(arguments, 4, b.self);
  return one(at::clamp(b.self - b.target, std::optional(-delta), std::optional(delta)) * b.grad);
}

/// `(self, target, reduction, beta)`; with one beta for all LibTorch's batching rule serves.
Results smooth_l1(const Arguments& arguments) {
  if (!arguments.differs(3)) return std::nullopt;
  const auto z = (arguments.lanes_first(0) - arguments.lanes_first(1)).abs(), beta = number_beside(arguments, 3, z);
  return one(reduced(at::where(z < beta, z * z * 0.5 / beta, z - beta * 0.5), arguments.plain(2).toInt()));
}

/// `(self, target, reduction, delta)`
Results huber(const Arguments& arguments) {
  if (!arguments.differs(3)) return std::nullopt;
  const auto z = (arguments.lanes_first(0) - arguments.lanes_first(1)).abs(), delta = number_beside(arguments, 3, z);
  return one(reduced(at::where(z <= delta, z * z * 0.5, delta * (z - delta * 0.5)), arguments.plain(2).toInt()));
}

/// `(self, target, reduction)`
Results soft_margin(const Arguments& arguments) {
  const auto losses = at::log1p((arguments.lanes_first(0) * arguments.lanes_first(1)).neg().exp());
  return one(reduced(losses, arguments.plain(2).toInt()));
}

/// `(self, target, weight, pos_weight, reduction)`, as LibTorch computes it.
Results binary_cross_entropy_with_logits(const Arguments& arguments) {
  const std::vector values{arguments.tensor(0), arguments.tensor(1), arguments.tensor(2), arguments.tensor(3)};
  const auto tensors = aligned(values, arguments.lanes());
  const auto &self = tensors[0], &target = tensors[1], &weight = tensors[2], &positive = tensors[3];
  const auto log_sigmoid = at::log_sigmoid(self);
  auto losses = (1 - target) * self;
  losses = positive.defined() ? losses - ((positive - 1) * target + 1) * log_sigmoid : losses - log_sigmoid;
  if (weight.defined()) losses = losses * weight;
  // A loss whose lane differs only in its weights may have broadcast last.
  return one(reduced(losses, arguments.plain(4).toInt()));
}

}  // namespace

void register_pointwise_loss_rules() {
  const std::pair<const char*, Results (*)(const Arguments&)> rules[] = {
      {"aten::mse_loss_backward", mse_backward}, {"aten::soft_margin_loss_backward", soft_margin_backward},
      {"aten::smooth_l1_loss_backward", smooth_l1_backward}, {"aten::huber_loss_backward", huber_backward}, {"aten::smooth_l1_loss", smooth_l1},
      {"aten::huber_loss", huber}, {"aten::soft_margin_loss", soft_margin},
      {"aten::binary_cross_entropy_with_logits", binary_cross_entropy_with_logits}};
  for (const auto& [name, run] : rules)
    add_rules({name, {{"reduced", [run = run](const RuleContext& context, std::span<const LaneValue> values) { return run(Arguments(context, values)); }}}});
}

}  // namespace hfta::ops
