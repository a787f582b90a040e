#include "hfta/optim/clip.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "hfta/base/error.h"
#include "hfta/optim/kernels.h"

namespace hfta::optim {
namespace {

constexpr double kGuard = 1e-6;  // torch.nn.utils.clip_grad_norm_'s

bool has_dense_rows(const at::Tensor& gradient) {
  return gradient.is_cpu() && gradient.size(0) > 0 && has_row_kernels(gradient.scalar_type()) && gradient.select(0, 0).is_non_overlapping_and_dense() &&
         (gradient.size(0) == 1 || gradient.stride(0) >= gradient[0].numel());
}

Rows rows_of(const at::Tensor& gradient) {
  Rows rows;
  rows.parameter = gradient.mutable_data_ptr();
  rows.gradient = rows.parameter;
  rows.parameter_stride = rows.gradient_stride = gradient.stride(0);
  rows.lanes = gradient.size(0);
  rows.size = gradient.numel() / rows.lanes;
  rows.type = gradient.scalar_type();
  return rows;
}

at::Tensor clip_rows(std::span<const at::Tensor> gradients, const std::vector<double>& max_norm, c10::ScalarType type) {
  std::vector<double> norms(max_norm.size());
  for (const auto& gradient : gradients)
    if (gradient.defined()) add_square_sums(rows_of(gradient), norms.data());
  std::vector<double> factors(max_norm.size());
  for (std::size_t lane = 0; lane < norms.size(); ++lane) {
    norms[lane] = std::sqrt(norms[lane]);
    const double factor = max_norm[lane] / (norms[lane] + kGuard);
    factors[lane] = factor > 1 ? 1 : factor;  // NaN stays: the lane's gradients become NaN, as in LibTorch
    if (std::isinf(max_norm[lane])) factors[lane] = 1;
  }
  for (const auto& gradient : gradients)
    if (gradient.defined()) scale_rows(rows_of(gradient), factors.data());
  return at::tensor(norms, at::kDouble).to(type);
}

at::Tensor clip_stacked(std::span<const at::Tensor> gradients, const std::vector<double>& max_norm, const at::Tensor& like) {
  std::vector<at::Tensor> norms;
  for (const auto& gradient : gradients)
    if (gradient.defined()) norms.push_back(at::linalg_vector_norm(gradient.reshape({gradient.size(0), -1}), 2, {1}));
  const auto total = at::linalg_vector_norm(at::stack(norms), 2, {0});
  const auto limit = at::tensor(max_norm, at::kDouble).to(at::TensorOptions(total.scalar_type()).device(like.device()));
  auto factors = limit.div(total.add(kGuard)).clamp_max(1.0);
  factors = factors.masked_fill(limit.isinf(), 1.0);
  for (const auto& gradient : gradients) {
    if (!gradient.defined()) continue;
    std::vector<std::int64_t> shape(static_cast<std::size_t>(gradient.dim()), 1);
    shape[0] = gradient.size(0);
    at::Tensor(gradient).mul_(factors.view(shape));
  }
  return total;
}

}  // namespace

at::Tensor clip_gradients(std::span<const at::Tensor> gradients, const std::vector<double>& max_norm) {
  const at::NoGradGuard no_grad;
  const auto width = static_cast<std::int64_t>(max_norm.size());
  at::Tensor like;
  bool dense = true;
  for (const auto& gradient : gradients) {
    if (!gradient.defined()) continue;
    HFTA_CHECK(gradient.dim() > 0 && gradient.size(0) == width, "optim::clip_gradients: expected gradients of ", width, " lanes as max_norm has entries, got ", gradient.sizes());
    if (!like.defined()) like = gradient;
    dense = dense && has_dense_rows(gradient) && gradient.scalar_type() == like.scalar_type();
  }
  for (std::int64_t lane = 0; lane < width; ++lane)
    HFTA_CHECK(max_norm[static_cast<std::size_t>(lane)] >= 0, "optim::clip_gradients: expected max_norm of lane ", lane, " at least 0, got ", max_norm[static_cast<std::size_t>(lane)]);
  if (!like.defined() || width == 0) return at::zeros({width});
  return dense ? clip_rows(gradients, max_norm, like.scalar_type()) : clip_stacked(gradients, max_norm, like);
}

}  // namespace hfta::optim
