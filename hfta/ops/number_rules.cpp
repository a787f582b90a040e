#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/le.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/where.h>

#include <functional>

#include "hfta/ops/arguments.h"
#include "hfta/ops/elementwise.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using at::Tensor;

/// An elementwise operator whose numbers differ between lanes: its tensors aligned, its numbers as tensors `[lanes, 1, ...]`.
class Operands {
 public:
  Operands(const Arguments& arguments, bool in_place) : arguments_(arguments) {
    std::vector<std::optional<LaneTensor>> values;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool is_tensor = std::holds_alternative<LaneTensor>(arguments[i]);
      values.push_back(is_tensor ? arguments.tensor(i) : std::nullopt);
    }
    tensors_ = aligned(values, arguments.lanes(), in_place);
    for (const auto& value : values)
      if (value) dim_ = std::max(dim_, value->lane_dim() + 1);
  }

  /// The tensor at this place; half-precision ones as float, since the kernels compute with the number unrounded.
  Tensor operator[](std::size_t index) const {
    const auto& tensor = tensors_[index];
    return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
  }
  /// As it is, to be written into; a shared one is not.
  const Tensor& own(std::size_t index) const { return tensors_[index]; }

  /// The number at this place, in the type that it has beside the tensor at `beside`: numbers never promote within a category.
  Tensor number(std::size_t index, std::size_t beside, const std::function<double(double)>& change = {}) const {
    auto numbers = arguments_.numbers(index);
    if (change)
      for (auto& number : numbers) number = change(number);
    return as_tensor(numbers, index, beside);
  }
  /// The product of two numbers, as of `other` and `alpha`.
  Tensor product(std::size_t index, std::size_t factor, std::size_t beside) const {
    auto numbers = arguments_.numbers(index);
    const auto factors = arguments_.numbers(factor);
    for (std::size_t lane = 0; lane < numbers.size(); ++lane) numbers[lane] *= factors[lane];
    return as_tensor(numbers, index, beside);
  }
  bool absent(std::size_t index) const { return !arguments_.differs(index) && arguments_.plain(index).isNone(); }
  bool flag(std::size_t index) const { return arguments_.plain(index).toBool(); }
  std::int64_t lanes() const { return arguments_.lanes(); }

 private:
  Tensor as_tensor(const std::vector<double>& numbers, std::size_t index, std::size_t beside) const {
    const auto tensor = (*this)[beside];
    return number_tensor(numbers, dim_, at::result_type(tensor, arguments_.number(index, 0)), tensor.device());
  }

  const Arguments& arguments_;
  std::vector<Tensor> tensors_;
  std::int64_t dim_ = 1;
};

using Compute = Tensor (*)(const Operands&);

Tensor zero_where(const Tensor& condition, const Tensor& value) { return at::where(condition, at::Scalar(0), value); }

Tensor add_scalar(const Operands& o) { return o[0] + o.product(1, 2, 0); }
Tensor sub_scalar(const Operands& o) { return o[0] - o.product(1, 2, 0); }
Tensor rsub_scalar(const Operands& o) { return o.number(1, 0) - o[0] * o.number(2, 0); }
Tensor add_tensor(const Operands& o) { return o[0] + o[1] * o.number(2, 1); }
Tensor sub_tensor(const Operands& o) { return o[0] - o[1] * o.number(2, 1); }
Tensor mul_scalar(const Operands& o) { return o[0] * o.number(1, 0); }
Tensor div_scalar(const Operands& o) { return o[0] / o.number(1, 0); }
Tensor pow_tensor(const Operands& o) { return at::pow(o[0], o.number(1, 0)); }
Tensor pow_number(const Operands& o) { return at::pow(o.number(0, 1), o[1]); }
Tensor remainder(const Operands& o) { return at::remainder(o[0], o.number(1, 0)); }
Tensor fmod(const Operands& o) { return at::fmod(o[0], o.number(1, 0)); }
Tensor floor_divide(const Operands& o) { return at::floor_divide(o[0], o.number(1, 0)); }
Tensor eq(const Operands& o) { return at::eq(o[0], o.number(1, 0)); }
Tensor ne(const Operands& o) { return at::ne(o[0], o.number(1, 0)); }
Tensor lt(const Operands& o) { return at::lt(o[0], o.number(1, 0)); }
Tensor le(const Operands& o) { return at::le(o[0], o.number(1, 0)); }
Tensor gt(const Operands& o) { return at::gt(o[0], o.number(1, 0)); }
Tensor ge(const Operands& o) { return at::ge(o[0], o.number(1, 0)); }
Tensor lerp(const Operands& o) { return at::lerp(o[0], o[1], o.number(2, 0)); }
Tensor addcmul(const Operands& o) { return o[0] + o.number(3, 0) * o[1] * o[2]; }
Tensor addcdiv(const Operands& o) { return o[0] + o.number(3, 0) * o[1] / o[2]; }
Tensor masked_fill(const Operands& o) { return at::where(o[1], o.number(2, 0).to(o[0].scalar_type()), o[0]); }
Tensor fill(const Operands& o) { return o.number(1, 0).to(o[0].scalar_type()).expand(o[0].sizes()); }

Tensor clamp(const Operands& o) {
  std::optional<Tensor> low, high;
  if (!o.absent(1)) low = o.number(1, 0);
  if (!o.absent(2)) high = o.number(2, 0);
  return at::clamp(o[0], low, high);
}
Tensor clamp_min(const Operands& o) { return at::clamp(o[0], std::optional(o.number(1, 0)), std::nullopt); }
Tensor clamp_max(const Operands& o) { return at::clamp(o[0], std::nullopt, std::optional(o.number(1, 0))); }
Tensor threshold(const Operands& o) { return at::where(o[0] <= o.number(1, 0), o.number(2, 0), o[0]); }
Tensor threshold_backward(const Operands& o) { return zero_where(o[1] <= o.number(2, 1), o[0]); }
Tensor hardtanh_backward(const Operands& o) { return zero_where((o[1] <= o.number(2, 1)).logical_or(o[1] >= o.number(3, 1)), o[0]); }
Tensor leaky_relu(const Operands& o) { return at::where(o[0] > 0, o[0], o[0] * o.number(1, 0)); }
Tensor leaky_relu_backward(const Operands& o) { return at::where(o[1] > 0, o[0], o[0] * o.number(2, 0)); }

/// `elu(self, alpha, scale, input_scale)`
Tensor elu(const Operands& o) {
  return at::where(o[0] > 0, o[0] * o.number(2, 0), at::expm1(o[0] * o.number(3, 0)) * o.product(1, 2, 0));
}
/// `elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result)`
Tensor elu_backward(const Operands& o) {
  const auto negative = o.flag(4) ? o[0] * o.number(3, 0) * (o[5] + o.product(1, 2, 0))
                                  : o[0] * o.number(3, 0) * o.product(1, 2, 0) * (o[5] * o.number(3, 0)).exp();
  return at::where(o[5] > 0, o[0] * o.number(2, 0), negative);
}
/// `softplus(self, beta, threshold)`
Tensor softplus(const Operands& o) {
  const auto beta = o.number(1, 0), scaled = o[0] * beta;
  return at::where(scaled > o.number(2, 0), o[0], at::log1p(scaled.exp()) / beta);
}
/// `softplus_backward(grad_output, self, beta, threshold)`
Tensor softplus_backward(const Operands& o) {
  const auto scaled = o[1] * o.number(2, 1), z = scaled.exp();
  return at::where(scaled > o.number(3, 1), o[0], o[0] * z / (z + 1));
}
Tensor hardshrink(const Operands& o) { return zero_where(o[0].abs() <= o.number(1, 0), o[0]); }
Tensor shrink_backward(const Operands& o) { return zero_where(o[1].abs() <= o.number(2, 1), o[0]); }
Tensor masked_scale(const Operands& o) { return o[0] * o[1] * o.number(2, 0); }
Tensor softshrink(const Operands& o) {
  const auto lambda = o.number(1, 0);
  return at::where(o[0].abs() <= lambda, o[0] * 0, o[0] - o[0].sign() * lambda);
}

// ---- in place without a copy, for what runs in every step (a dropout's division)

void add_in_place(const Operands& o) { o.own(0).add_(o.product(1, 2, 0)); }
void sub_in_place(const Operands& o) { o.own(0).sub_(o.product(1, 2, 0)); }
void mul_in_place(const Operands& o) { o.own(0).mul_(o.number(1, 0)); }
void div_in_place(const Operands& o) { o.own(0).div_(o.number(1, 0)); }

struct NumberForm {
  const char* name;       ///< Without the trailing underscore of the in-place twin.
  const char* overload;
  Compute compute;
  bool has_in_place = false;
  void (*in_place)(const Operands&) = nullptr;
};

constexpr NumberForm kNumberForms[]{
    {"add", "Scalar", add_scalar, true, add_in_place}, {"sub", "Scalar", sub_scalar, true, sub_in_place}, {"rsub", "Scalar", rsub_scalar},
    {"add", "Tensor", add_tensor, true}, {"sub", "Tensor", sub_tensor, true}, {"mul", "Scalar", mul_scalar, true, mul_in_place},
    {"div", "Scalar", div_scalar, true, div_in_place}, {"pow", "Tensor_Scalar", pow_tensor}, {"pow", "Scalar", pow_number},
    {"remainder", "Scalar", remainder, true}, {"fmod", "Scalar", fmod, true}, {"floor_divide", "Scalar", floor_divide, true},
    {"eq", "Scalar", eq, true}, {"ne", "Scalar", ne, true}, {"lt", "Scalar", lt, true}, {"le", "Scalar", le, true},
    {"gt", "Scalar", gt, true}, {"ge", "Scalar", ge, true}, {"lerp", "Scalar", lerp, true}, {"addcmul", "", addcmul, true},
    {"addcdiv", "", addcdiv, true}, {"masked_fill", "Scalar", masked_fill, true}, {"fill", "Scalar", fill, true},
    {"clamp", "", clamp, true}, {"clamp_min", "", clamp_min, true}, {"clamp_max", "", clamp_max, true}, {"threshold", "", threshold, true},
    {"threshold_backward", "", threshold_backward}, {"hardtanh", "", clamp, true}, {"hardtanh_backward", "", hardtanh_backward},
    {"leaky_relu", "", leaky_relu, true}, {"leaky_relu_backward", "", leaky_relu_backward}, {"elu", "", elu, true},
    {"elu_backward", "", elu_backward}, {"softplus", "", softplus}, {"softplus_backward", "", softplus_backward}, {"hardshrink", "", hardshrink},
    {"hardshrink_backward", "", shrink_backward}, {"softshrink", "", softshrink}, {"softshrink_backward", "", shrink_backward},
    {"native_dropout_backward", "", masked_scale}};

/// Its functional twin has another overload's name.
constexpr NumberForm kPowInPlace{"pow", "Scalar", pow_tensor};

using Results = std::optional<std::vector<LaneValue>>;

Results functional(const NumberForm& form, const Arguments& arguments) {
  const Operands operands(arguments, false);
  auto result = form.compute(operands);
  const std::size_t like = std::holds_alternative<LaneTensor>(arguments[0]) ? 0 : 1;
  if (form.compute == fill) result = result.clone(at::MemoryFormat::Contiguous);
  if (const auto type = operands.own(like).scalar_type(); at::isReducedFloatingType(type) && result.scalar_type() == at::kFloat) result = result.to(type);
  return std::vector<LaneValue>{LaneTensor{result, 0}};
}

Results in_place(const NumberForm& form, const Arguments& arguments) {
  TORCH_INTERNAL_ASSERT(!arguments.required(0).is_shared(), "ops: a shared destination cannot take per-lane numbers");
  const Operands operands(arguments, true);
  if (form.in_place && !at::isReducedFloatingType(operands.own(0).scalar_type())) form.in_place(operands);
  else operands.own(0).copy_(form.compute(operands));
  return std::vector<LaneValue>{arguments[0]};
}

void add(const NumberForm& form, const std::string& name, Results (*run)(const NumberForm&, const Arguments&)) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, form.overload});
  if (!op) return;
  add_rules({toString(op->operator_name()), {{"numbers", [&form, run](const RuleContext& context, std::span<const LaneValue> values) -> Results {
    const Arguments arguments(context, values);
    // Equal numbers are left to LibTorch's batching rule.
    if (!arguments.any_differs()) return std::nullopt;
    return run(form, arguments);
  }}}});
}

/// `full(size, fill_value, ...)`, `full_like(self, fill_value, ...)` and `scalar_tensor(s, ...)` make a tensor of a number.
Results full(const c10::FunctionSchema& schema, const Arguments& arguments) {
  if (!arguments.any_differs()) return std::nullopt;
  std::vector<std::int64_t> sizes{arguments.lanes()};
  std::optional<std::size_t> number;
  auto type = c10::typeMetaToScalarType(at::get_default_dtype());
  std::optional<at::ScalarType> given;
  at::Device device = at::kCPU;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& name = schema.arguments()[i].name();
    if (name == "self") {
      const auto self = lane_of(arguments.required(i), 0);
      sizes.insert(sizes.end(), self.sizes().begin(), self.sizes().end());
      type = self.scalar_type(), device = self.device();
    } else if (name == "fill_value" || name == "s") number = i;
    else if (name == "size") for (const auto size : arguments.integers(i)) sizes.push_back(size);
    else if (name == "dtype" && !arguments.plain(i).isNone()) given = arguments.plain(i).toScalarType();
    else if (name == "device" && !arguments.plain(i).isNone()) device = arguments.plain(i).toDevice();
  }
  if (schema.name() == "aten::full" && arguments.number(*number, 0).isIntegral(false)) type = at::kLong;
  const auto numbers = number_tensor(arguments.numbers(*number), static_cast<std::int64_t>(sizes.size()), given.value_or(type), device);
  return std::vector<LaneValue>{LaneTensor{sizes.size() == 1 ? numbers : numbers.expand(sizes).clone(at::MemoryFormat::Contiguous), 0}};
}

}  // namespace

void register_number_rules() {
  for (const auto& form : kNumberForms) {
    add(form, std::string("aten::") + form.name, functional);
    if (form.has_in_place) add(form, std::string("aten::") + form.name + "_", in_place);
  }
  add(kPowInPlace, "aten::pow_", in_place);
  for (const char* name : {"aten::full", "aten::full_like", "aten::scalar_tensor"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    add_rules({name, {{"numbers", [op](const RuleContext& context, std::span<const LaneValue> values) {
      return full(op.schema(), Arguments(context, values));
    }}}});
  }
}

}  // namespace hfta::ops
