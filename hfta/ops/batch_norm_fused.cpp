#include "hfta/ops/batch_norm_fused.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace hfta::ops {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

using BatchNormKernel = void(const Tensor&, const Optional&, const Optional&, const Optional&, const Optional&, bool, at::ArrayRef<double>, at::ArrayRef<double>,
                     const Tensor&, const Tensor&, const Tensor&);
using BatchNormGradientKernel = void(const Tensor&, const Tensor&, const Optional&, const Tensor&, const Tensor&, bool, at::ArrayRef<double>, const Optional&,
                      const Optional&, const Optional&);

bool is_plain(const Tensor& tensor) {
  return tensor.device().is_cpu() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}

bool kernel_takes(const LaneTensor& input, const BatchNormState& state) {
  if (!is_plain(input.tensor) || input.tensor.numel() == 0) return false;
  for (const auto* value : {&state.weight, &state.bias, &state.running_mean, &state.running_var})
    if (*value && (*value)->tensor.scalar_type() != input.tensor.scalar_type()) return false;
  return true;
}

/// `[lanes, N, C, S]`, a view where the places after the channels are one run.
Tensor as_planes(const Tensor& lanes_first) { return lanes_first.dim() == 3 ? lanes_first.unsqueeze(-1) : lanes_first.flatten(3); }

/// Planes or rows are contiguous, as the kernel needs them.
bool has_layout(const Tensor& planes) {
  if (planes.size(3) == 1) return planes.stride(2) == 1 || planes.size(2) == 1;
  return planes.stride(3) == 1 || planes.stride(2) == 1;
}

bool in_rows(const Tensor& planes) { return planes.size(3) != 1 && planes.stride(3) != 1; }

Tensor with_layout(const Tensor& planes) { return has_layout(planes) ? planes : planes.contiguous(); }

/// The other tensor in the layout of this one, copied where it has another.
Tensor in_layout_of(const Tensor& planes, const Tensor& other) {
  if (has_layout(other) && in_rows(other) == in_rows(planes)) return other;
  return in_rows(planes) ? other.permute({0, 1, 3, 2}).contiguous().permute({0, 1, 3, 2}) : other.contiguous();
}

/// Fresh memory in the layout of this tensor, and in its order of axes where it is dense.
Tensor memory_like(const Tensor& planes) {
  const auto same = at::empty_like(planes);
  if (has_layout(same) && in_rows(same) == in_rows(planes)) return same;
  if (!in_rows(planes)) return at::empty(planes.sizes(), planes.options());
  return at::empty({planes.size(0), planes.size(1), planes.size(3), planes.size(2)}, planes.options()).permute({0, 1, 3, 2});
}

/// `[lanes, N, C, S]` as the lanes' own shape.
LaneTensor from_planes(const Tensor& planes, const LaneTensor& like, std::int64_t lanes) {
  if (like.lane_dim() == 2) return {planes.squeeze(3), 0};
  return {planes.unflatten(3, lanes_first(like, lanes).sizes().slice(3)), 0};
}

/// `[lanes, C]` with contiguous rows.
Optional as_rows(const std::optional<LaneTensor>& value, std::int64_t lanes) {
  if (!value) return std::nullopt;
  const auto rows = lanes_first(*value, lanes);
  return rows.size(1) == 1 || rows.stride(1) == 1 ? rows : rows.contiguous();
}

/// Running statistics are written, so they cannot be copies.
bool writable(const std::optional<LaneTensor>& value) { return !value || (!value->is_shared() && (lanes_first(*value, 0).stride(1) == 1 || lanes_first(*value, 0).size(1) == 1)); }

}  // namespace

std::optional<BatchNormOutput> batch_norm_fused(const LaneTensor& input, const BatchNormState& state, const BatchNormOptions& options, std::int64_t lanes) {
  if (!kernel_takes(input, state)) return std::nullopt;
  if (options.training && !(writable(state.running_mean) && writable(state.running_var))) return std::nullopt;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::batch_norm_", "").typed<BatchNormKernel>();
  const auto x = with_layout(as_planes(lanes_first(input, lanes))), y = memory_like(x);
  const auto channels = options.training ? x.size(2) : 0;
  const auto mean = at::empty({lanes, channels}, x.options()), inverse_std = at::empty({lanes, channels}, x.options());
  op.call(x, as_rows(state.weight, lanes), as_rows(state.bias, lanes), as_rows(state.running_mean, lanes), as_rows(state.running_var, lanes),
          options.training, options.momentum, options.eps, y, mean, inverse_std);
  return BatchNormOutput{from_planes(y, input, lanes), {mean, 0}, {inverse_std, 0}};
}

std::optional<BatchNormGradients> batch_norm_backward_fused(const BatchNormBackward& arguments, std::int64_t lanes) {
  const auto& [gradient, input, state, saved, options, mask] = arguments;
  if (!kernel_takes(input, state)) return std::nullopt;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::batch_norm_backward_", "").typed<BatchNormGradientKernel>();
  const auto x = with_layout(as_planes(lanes_first(input, lanes))), dy = in_layout_of(x, as_planes(lanes_first(gradient, lanes)));
  const auto channels = [&](bool wanted) { return wanted ? Optional(at::empty({lanes, x.size(2)}, x.options())) : std::nullopt; };
  Optional dx;
  if (mask[0]) dx = memory_like(x);
  const auto dweight = channels(mask[1]), dbias = channels(mask[2]);
  const auto mean = as_rows(options.training ? saved.mean : state.running_mean, lanes);
  const auto spread = as_rows(options.training ? saved.inverse_std : state.running_var, lanes);
  op.call(dy, x, as_rows(state.weight, lanes), *mean, *spread, options.training, options.eps, dx, dweight, dbias);
  BatchNormGradients result;
  if (dx) result.input = from_planes(*dx, input, lanes);
  if (dweight) result.weight = LaneTensor{*dweight, 0};
  if (dbias) result.bias = LaneTensor{*dbias, 0};
  return result;
}

}  // namespace hfta::ops
