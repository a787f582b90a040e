#include "hfta/ops/layer_norm.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "hfta/ops/arguments.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

/// Merges neighbouring axes where strides allow, then gives the outer ones two places: `[lanes, A, B, N]`; a copy where more are left.
Tensor as_rows(const Tensor& lanes_first, std::int64_t dims) {
  auto tensor = dims == 0 ? lanes_first.unsqueeze(-1) : lanes_first.flatten(-dims);
  if (tensor.stride(-1) != 1 && tensor.size(-1) != 1) tensor = tensor.contiguous();
  for (std::int64_t axis = 1; axis + 2 < tensor.dim();) {
    const bool merge = tensor.size(axis) == 1 || tensor.size(axis + 1) == 1 || tensor.stride(axis) == tensor.stride(axis + 1) * tensor.size(axis + 1);
    if (merge) tensor = tensor.flatten(axis, axis + 1);
    else ++axis;
  }
  if (tensor.dim() > 4) tensor = tensor.contiguous().flatten(1, -2);
  while (tensor.dim() < 4) tensor = tensor.unsqueeze(1);
  return tensor;
}

/// `[lanes, N]`, each row contiguous.
Optional as_parameter(const std::optional<LaneTensor>& value, std::int64_t lanes) {
  if (!value) return std::nullopt;
  const auto rows = lanes_first(*value, lanes).flatten(1);
  return rows.stride(1) == 1 || rows.size(1) == 1 ? rows : rows.contiguous();
}

/// Shapes of the statistics: ones in place of the normalized dimensions.
std::vector<std::int64_t> statistics_sizes(const Tensor& lanes_first, std::int64_t dims) {
  auto sizes = lanes_first.sizes().vec();
  std::fill(sizes.end() - dims, sizes.end(), 1);
  return sizes;
}

bool kernel_takes(const LayerNormArguments& arguments) {
  const auto& tensor = arguments.input.tensor;
  const auto fits = [&](const std::optional<LaneTensor>& value) { return !value || value->tensor.scalar_type() == tensor.scalar_type(); };
  const bool type = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
  return tensor.device().is_cpu() && type && tensor.numel() > 0 && fits(arguments.weight) && fits(arguments.bias);
}

std::optional<LayerNormOutput> forward_fused(const LayerNormArguments& arguments, const std::vector<double>& eps, std::int64_t lanes) {
  if (!kernel_takes(arguments)) return std::nullopt;
  using Kernel = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Optional&, const Optional&, at::ArrayRef<double>);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::layer_norm", "").typed<Kernel>();
  const auto input = lanes_first(arguments.input, lanes);
  auto [output, mean, inverse_std] =
      op.call(as_rows(input, arguments.dims), as_parameter(arguments.weight, lanes), as_parameter(arguments.bias, lanes), eps);
  const auto statistics = statistics_sizes(input, arguments.dims);
  return LayerNormOutput{{output.view(input.sizes()), 0}, {mean.view(statistics), 0}, {inverse_std.view(statistics), 0}};
}

/// A weight `[lanes, ..]` between the lane axis and the normalized dimensions of the input.
Tensor beside(const LaneTensor& value, const Tensor& input, std::int64_t dims, std::int64_t lanes) {
  auto tensor = lanes_first(value, lanes);
  for (std::int64_t i = 0; i < input.dim() - 1 - dims; ++i) tensor = tensor.unsqueeze(1);
  return tensor;
}

std::optional<LayerNormOutput> forward_decomposed(const LayerNormArguments& arguments, const std::vector<double>& eps, std::int64_t lanes) {
  const bool equal = std::all_of(eps.begin(), eps.end(), [&](double one) { return one == eps.front(); });
  if (!equal) return std::nullopt;
  const auto input = lanes_first(arguments.input, lanes);
  auto [output, mean, inverse_std] = at::native_layer_norm(input, input.sizes().slice(input.dim() - arguments.dims), {}, {}, eps.front());
  if (arguments.weight) output = output.mul(beside(*arguments.weight, input, arguments.dims, lanes));
  if (arguments.bias) output = output.add(beside(*arguments.bias, input, arguments.dims, lanes));
  return LayerNormOutput{{output, 0}, {mean, 0}, {inverse_std, 0}};
}

std::optional<LayerNormGradients> backward_fused(const LaneTensor& gradient, const LayerNormArguments& arguments, const LaneTensor& mean,
                                                 const LaneTensor& inverse_std, std::array<bool, 3> mask, std::int64_t lanes) {
  if (!kernel_takes(arguments)) return std::nullopt;
  using Kernel = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Optional&, std::array<bool, 3>);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::layer_norm_backward", "").typed<Kernel>();
  const auto input = lanes_first(arguments.input, lanes), grad = lanes_first(gradient, lanes);
  auto x = as_rows(input, arguments.dims), dy = as_rows(grad, arguments.dims);
  // The two may have been given different places for their axes.
  if (!x.sizes().equals(dy.sizes())) x = as_rows(input.contiguous(), arguments.dims), dy = as_rows(grad.contiguous(), arguments.dims);
  auto [dx, dweight, dbias] = op.call(dy, x, lanes_first(mean, lanes).contiguous(), lanes_first(inverse_std, lanes).contiguous(),
                                      as_parameter(arguments.weight, lanes), mask);
  std::vector<std::int64_t> parameter{lanes};
  for (const auto size : input.sizes().slice(input.dim() - arguments.dims)) parameter.push_back(size);
  LayerNormGradients result;
  if (mask[0]) result.input = LaneTensor{dx.view(input.sizes()), 0};
  if (mask[1]) result.weight = LaneTensor{dweight.view(parameter), 0};
  if (mask[2]) result.bias = LaneTensor{dbias.view(parameter), 0};
  return result;
}

std::optional<LayerNormGradients> backward_decomposed(const LaneTensor& gradient, const LayerNormArguments& arguments, const LaneTensor& mean,
                                                      const LaneTensor& inverse_std, std::array<bool, 3> mask, std::int64_t lanes) {
  const auto input = lanes_first(arguments.input, lanes), grad = lanes_first(gradient, lanes);
  const auto center = lanes_first(mean, lanes), deviation = lanes_first(inverse_std, lanes);
  const auto normalized = input.sizes().slice(input.dim() - arguments.dims);
  std::vector<std::int64_t> rows;
  for (std::int64_t axis = 1; axis < input.dim() - arguments.dims; ++axis) rows.push_back(axis);
  const auto summed = [&](const Tensor& tensor) { return LaneTensor{rows.empty() ? tensor.clone() : tensor.sum(rows), 0}; };
  LayerNormGradients result;
  if (mask[0]) {
    const auto weighted = arguments.weight ? grad.mul(beside(*arguments.weight, input, arguments.dims, lanes)) : grad;
    const auto dx = at::native_layer_norm_backward(weighted, input, normalized, center, deviation, {}, {}, {true, false, false});
    result.input = LaneTensor{std::get<0>(dx), 0};
  }
  if (mask[1]) result.weight = summed(input.sub(center).mul(deviation).mul(grad).to(grad.scalar_type()));
  if (mask[2]) result.bias = summed(grad);
  return result;
}

}  // namespace

std::optional<LayerNormOutput> layer_norm(const LayerNormArguments& arguments, const std::vector<double>& eps, std::int64_t lanes,
                                          LayerNormLowering lowering) {
  switch (lowering) {
    case LayerNormLowering::Fused: return forward_fused(arguments, eps, lanes);
    case LayerNormLowering::Decomposed: return forward_decomposed(arguments, eps, lanes);
  }
  return std::nullopt;
}

std::optional<LayerNormGradients> layer_norm_backward(const LaneTensor& gradient, const LayerNormArguments& arguments, const LaneTensor& mean,
                                                      const LaneTensor& inverse_std, std::array<bool, 3> mask, std::int64_t lanes,
                                                      LayerNormLowering lowering) {
  switch (lowering) {
    case LayerNormLowering::Fused: return backward_fused(gradient, arguments, mean, inverse_std, mask, lanes);
    case LayerNormLowering::Decomposed: return backward_decomposed(gradient, arguments, mean, inverse_std, mask, lanes);
  }
  return std::nullopt;
}

// ---- rules

namespace {

using Results = std::optional<std::vector<LaneValue>>;

/// `(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)`
Results layer_norm_rule(const Arguments& arguments, LayerNormLowering lowering) {
  const LayerNormArguments read{arguments.required(0), static_cast<std::int64_t>(arguments.integers(1).size()), arguments.tensor(2), arguments.tensor(3)};
  const auto result = layer_norm(read, arguments.numbers(4), arguments.lanes(), lowering);
  if (!result) return std::nullopt;
  return std::vector<LaneValue>{result->output, result->mean, result->inverse_std};
}

/// `(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask)`
Results layer_norm_backward_rule(const Arguments& arguments, LayerNormLowering lowering) {
  const LayerNormArguments read{arguments.required(1), static_cast<std::int64_t>(arguments.integers(2).size()), arguments.tensor(5), arguments.tensor(6)};
  const auto wanted = arguments.booleans(7);
  // LibTorch leaves out the gradients of parameters that are not there, whatever is asked for.
  const std::array<bool, 3> mask{wanted[0], wanted[1] && read.weight, wanted[2] && read.bias};
  const auto result =
      layer_norm_backward(arguments.required(0), read, arguments.required(3), arguments.required(4), mask, arguments.lanes(), lowering);
  if (!result) return std::nullopt;
  return std::vector<LaneValue>{or_none(result->input), or_none(result->weight), or_none(result->bias)};
}

void add_layer_norm(const char* name, Results (*run)(const Arguments&, LayerNormLowering)) {
  OperatorRules rules{name, {}};
  for (const auto lowering : kLayerNormLowerings) {
    const bool fused = lowering == LayerNormLowering::Fused;
    rules.lowerings.push_back({fused ? "fused" : "decomposed", [run, lowering](const RuleContext& context, std::span<const LaneValue> values) {
      return run(Arguments(context, values), lowering);
    }, fused});
  }
  add_rules(std::move(rules));
}

}  // namespace

void register_layer_norm_rules() {
  add_layer_norm("aten::native_layer_norm", layer_norm_rule);
  add_layer_norm("aten::native_layer_norm_backward", layer_norm_backward_rule);
}

}  // namespace hfta::ops
