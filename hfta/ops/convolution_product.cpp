#include "hfta/ops/convolution_product.h"

#include <ATen/ops/addbmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>

#include "hfta/ops/layout.h"

namespace hfta::ops {
namespace {

bool all_equal(const std::vector<std::int64_t>& values, std::int64_t value) {
  return std::ranges::all_of(values, [=](std::int64_t entry) { return entry == value; });
}

bool is_product(const LaneTensor& weight, const ConvolutionOptions& options) {
  const auto one = lane_of(weight, 0);
  return std::ranges::all_of(one.sizes().slice(2), [](std::int64_t size) { return size == 1; }) && options.groups == 1 &&
         all_equal(options.stride, 1) && all_equal(options.padding, 0) && all_equal(options.output_padding, 0);
}

/// One lane's weight as a matrix `[O, C]`, or that of many lanes `[lanes * O, C]`.
at::Tensor matrix(const at::Tensor& weight, const ConvolutionOptions& options) {
  const auto flat = weight.flatten(1);
  return options.transposed ? flat.t() : flat;
}

at::Tensor all_matrices(const LaneTensor& weight, const ConvolutionOptions& options, std::int64_t lanes) {
  return matrix(fold_lanes(weight, lanes, options.transposed ? 1 : 0), options);
}

/// `[N, channels, positions]`
at::Tensor positions(const at::Tensor& images) { return images.flatten(2); }

at::Tensor repeated(const at::Tensor& matrix, std::int64_t batch) { return matrix.unsqueeze(0).expand({batch, -1, -1}); }

/// `[O, C] @ [N, C, positions] + bias`
at::Tensor apply(const at::Tensor& matrix, const at::Tensor& images, const std::optional<at::Tensor>& bias) {
  const auto left = repeated(matrix, images.size(0)), right = positions(images);
  return bias ? at::baddbmm(bias->unsqueeze(-1), left, right) : at::bmm(left, right);
}

void apply_into(at::Tensor out, const at::Tensor& matrix, const at::Tensor& images, const std::optional<at::Tensor>& bias) {
  const auto left = repeated(matrix, images.size(0)), right = positions(images);
  bias ? at::baddbmm_out(out, bias->unsqueeze(-1), left, right) : at::bmm_out(out, left, right);
}

/// Each lane's `apply` in its row of `[lanes, N, O, positions]`.
at::Tensor apply_each(const std::function<at::Tensor(std::int64_t lane)>& matrix_of, const LaneTensor& images,
                      const std::optional<LaneTensor>& bias, std::int64_t lanes) {
  const auto bias_of = [&](std::int64_t lane) { return bias ? std::optional(lane_of(*bias, lane)) : std::nullopt; };
  if (lanes == 1) return apply(matrix_of(0), lane_of(images, 0), bias_of(0)).unsqueeze(0);
  const auto first = positions(lane_of(images, 0));
  const auto result = at::empty({lanes, first.size(0), matrix_of(0).size(0), first.size(2)}, first.options());
  for (std::int64_t lane = 0; lane < lanes; ++lane) apply_into(result.select(0, lane), matrix_of(lane), lane_of(images, lane), bias_of(lane));
  return result;
}

std::vector<std::int64_t> spatial(const LaneTensor& images) { return lane_of(images, 0).sizes().slice(2).vec(); }

/// Positions back to spatial axes.
LaneTensor with_spatial(LaneTensor value, at::IntArrayRef sizes) {
  value.tensor = value.tensor.unflatten(-1, sizes);
  return value;
}

/// Sum over the batch of `grad_output @ input^T`: `[O, C]`.
at::Tensor weight_gradient(const at::Tensor& grad_output, const at::Tensor& input) {
  const auto left = positions(grad_output), right = positions(input).transpose(1, 2);
  // One product per image first needs memory for N matrices: only where they are smaller than the images.
  if (left.size(1) * right.size(2) <= left.size(1) * left.size(2)) return at::bmm(left, right).sum(0);
  return at::addbmm(at::zeros({left.size(1), right.size(2)}, left.options()), left, right, /*beta=*/0);
}

at::Tensor weight_gradients(const LaneTensor& grad_output, const LaneTensor& input, std::int64_t lanes) {
  if (input.is_shared()) return unfold_lanes(weight_gradient(fold_lanes(grad_output, lanes, 1), input.tensor), lanes, 0).tensor;
  std::vector<at::Tensor> of_lanes;
  for (std::int64_t lane = 0; lane < lanes; ++lane) of_lanes.push_back(weight_gradient(lane_of(grad_output, lane), lane_of(input, lane)));
  return lanes == 1 ? of_lanes[0].unsqueeze(0) : at::stack(of_lanes);
}

}  // namespace

std::optional<LaneTensor> convolution_product(const LaneTensor& input, const LaneTensor& weight, const std::optional<LaneTensor>& bias,
                                              const ConvolutionOptions& options, std::int64_t lanes) {
  if (!is_product(weight, options)) return std::nullopt;
  const auto sizes = spatial(input);
  if (input.is_shared() && !weight.is_shared()) {
    const auto all_bias = bias ? std::optional(fold_lanes(*bias, lanes, 0)) : std::nullopt;
    return with_spatial(unfold_lanes(apply(all_matrices(weight, options, lanes), input.tensor, all_bias), lanes, 1), sizes);
  }
  if (weight.is_shared() && (!bias || bias->is_shared())) {
    const auto order = batch_order(input);
    const auto plain_bias = bias ? std::optional(bias->tensor) : std::nullopt;
    return with_spatial(unfold_batch(apply(matrix(weight.tensor, options), fold_batch(input, lanes, order), plain_bias), lanes, order), sizes);
  }
  const auto matrix_of = [&](std::int64_t lane) { return matrix(lane_of(weight, lane), options); };
  return with_spatial({apply_each(matrix_of, input, bias, lanes), 0}, sizes);
}

std::optional<ConvolutionGradients> convolution_product_backward(const LaneTensor& grad_output, const LaneTensor& input,
                                                                 const LaneTensor& weight, const ConvolutionOptions& options,
                                                                 std::array<bool, 3> wanted, std::int64_t lanes) {
  if (!is_product(weight, options)) return std::nullopt;
  ConvolutionGradients results;
  if (wanted[0]) {
    const auto matrix_of = [&](std::int64_t lane) { return matrix(lane_of(weight, lane), options).t(); };
    results[0] = with_spatial({apply_each(matrix_of, grad_output, std::nullopt, lanes), 0}, spatial(input));
  }
  if (wanted[1]) {
    auto gradients = weight_gradients(grad_output, input, lanes);
    if (options.transposed) gradients = gradients.transpose(1, 2);
    while (gradients.dim() < weight.lane_dim() + 1) gradients = gradients.unsqueeze(-1);
    results[1] = LaneTensor{gradients, 0};
  }
  if (wanted[2]) {
    const auto all = lanes_first(grad_output, lanes);
    std::vector<std::int64_t> axes{1};
    for (std::int64_t axis = 3; axis < all.dim(); ++axis) axes.push_back(axis);
    results[2] = LaneTensor{all.sum(axes), 0};
  }
  return results;
}

}  // namespace hfta::ops
