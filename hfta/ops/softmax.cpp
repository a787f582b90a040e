#include "hfta/ops/softmax.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>

#include "hfta/ops/arguments.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using at::Tensor;

/// The lane's dimension counted in the physical tensor.
std::int64_t physical_dim(const LaneTensor& value, std::int64_t dim) {
  if (dim < 0) dim += value.lane_dim();
  return value.axis && *value.axis <= dim ? dim + 1 : dim;
}

bool kernel_takes(const LaneTensor& value, std::int64_t dim) {
  const auto& tensor = value.tensor;
  const bool type = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
  return tensor.device().is_cpu() && type && tensor.numel() > 0 && value.lane_dim() > 0 && physical_dim(value, dim) == tensor.dim() - 1 &&
         tensor.size(-1) <= kMostClasses;
}

const char* kernel_of(SoftmaxFunction function) {
  switch (function) {
    case SoftmaxFunction::Softmax: return "hfta::softmax";
    case SoftmaxFunction::LogSoftmax: return "hfta::log_softmax";
    case SoftmaxFunction::SafeSoftmax: return "hfta::safe_softmax";
  }
  return "";
}

Tensor softmax_of(const Tensor& tensor, std::int64_t dim, SoftmaxFunction function) {
  switch (function) {
    case SoftmaxFunction::Softmax: return at::_softmax(tensor, dim, false);
    case SoftmaxFunction::LogSoftmax: return at::_log_softmax(tensor, dim, false);
    case SoftmaxFunction::SafeSoftmax: return at::_safe_softmax(tensor, dim);
  }
  return {};
}

/// The lane axis moved in front of a last dimension that must stay last.
LaneTensor with_last(const LaneTensor& value) {
  if (value.is_shared() || *value.axis != value.tensor.dim() - 1) return value;
  return {value.tensor.movedim(*value.axis, 0), 0};
}

}  // namespace

std::optional<LaneTensor> softmax(const LaneTensor& input, std::int64_t dim, SoftmaxFunction function, SoftmaxLowering lowering) {
  const auto value = with_last(input);
  if (lowering == SoftmaxLowering::Batched) return LaneTensor{softmax_of(value.tensor, physical_dim(value, dim), function), value.axis};
  if (!kernel_takes(value, dim)) return std::nullopt;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(kernel_of(function), "").typed<Tensor(const Tensor&)>();
  return LaneTensor{op.call(value.tensor.contiguous()), value.axis};
}

std::optional<LaneTensor> softmax_backward(const LaneTensor& gradient, const LaneTensor& output, std::int64_t dim, SoftmaxFunction function,
                                           std::int64_t lanes, SoftmaxLowering lowering) {
  const bool log = function == SoftmaxFunction::LogSoftmax;
  const auto value = with_last(output);
  // Both with the lane axis at one place.
  const auto grad = value.axis ? ops::lanes_first(gradient, lanes).movedim(0, *value.axis) : gradient.tensor;
  const auto type = value.tensor.scalar_type();
  if (lowering == SoftmaxLowering::Batched) {
    const auto along = physical_dim(value, dim);
    return LaneTensor{log ? at::_log_softmax_backward_data(grad, value.tensor, along, type) : at::_softmax_backward_data(grad, value.tensor, along, type),
                      value.axis};
  }
  if (!kernel_takes(value, dim) || grad.scalar_type() != type) return std::nullopt;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::softmax_backward", "").typed<Tensor(const Tensor&, const Tensor&, bool)>();
  return LaneTensor{op.call(grad.contiguous(), value.tensor.contiguous(), log), value.axis};
}

// ---- rules

namespace {

using Results = std::optional<std::vector<LaneValue>>;

Results softmax_results(std::optional<LaneTensor> value) {
  if (!value) return std::nullopt;
  return std::vector<LaneValue>{*std::move(value)};
}

/// `_softmax(self, dim, half_to_float)`, `_safe_softmax(self, dim, dtype)`
Results softmax_rule(const Arguments& arguments, SoftmaxFunction function, SoftmaxLowering lowering) {
  const auto& option = arguments.plain(2);
  if (option.isBool() ? option.toBool() : !option.isNone()) return std::nullopt;
  auto input = arguments.required(0);
  if (input.is_shared()) input = {ops::lanes_first(input, arguments.lanes()), 0};
  return softmax_results(softmax(input, arguments.plain(1).toInt(), function, lowering));
}

/// `(grad_output, output, dim, input_dtype)`
Results softmax_backward_rule(const Arguments& arguments, SoftmaxFunction function, SoftmaxLowering lowering) {
  auto output = arguments.required(1);
  if (arguments.plain(3).toScalarType() != output.tensor.scalar_type()) return std::nullopt;
  if (output.is_shared()) output = {ops::lanes_first(output, arguments.lanes()), 0};
  return softmax_results(softmax_backward(arguments.required(0), output, arguments.plain(2).toInt(), function, arguments.lanes(), lowering));
}

void add_softmax(const char* name, SoftmaxFunction function, Results (*run)(const Arguments&, SoftmaxFunction, SoftmaxLowering)) {
  OperatorRules rules{name, {}};
  for (const auto lowering : kSoftmaxLowerings) {
    const bool fused = lowering == SoftmaxLowering::Fused;
    rules.lowerings.push_back({fused ? "fused" : "batched", [=](const RuleContext& context, std::span<const LaneValue> values) {
      return run(Arguments(context, values), function, lowering);
    }, fused});
  }
  add_rules(std::move(rules));
}

}  // namespace

void register_softmax_rules() {
  add_softmax("aten::_softmax", SoftmaxFunction::Softmax, softmax_rule);
  add_softmax("aten::_log_softmax", SoftmaxFunction::LogSoftmax, softmax_rule);
  add_softmax("aten::_safe_softmax", SoftmaxFunction::SafeSoftmax, softmax_rule);
  add_softmax("aten::_softmax_backward_data", SoftmaxFunction::Softmax, softmax_backward_rule);
  add_softmax("aten::_log_softmax_backward_data", SoftmaxFunction::LogSoftmax, softmax_backward_rule);
}

}  // namespace hfta::ops
