#include "hfta/train/agreement.h"

#include <ATen/core/TensorBody.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/nan_to_num.h>

#include <algorithm>
#include <limits>

namespace hfta::train {
namespace {

double relative_tolerance(c10::ScalarType type) {
  if (type == at::kDouble) return 1e-8;
  if (type == at::kFloat) return 2e-3;
  return 5e-2;
}

double scale_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  const auto finite = at::nan_to_num(tensor.to(at::kDouble), 0, 0, 0);
  return finite.abs().max().item<double>();
}

/// The largest difference of the numbers that are finite in both.
double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  const auto both = at::isfinite(x).logical_and(at::isfinite(y));
  return both.any().item<bool>() ? (x - y).abs().masked_fill(both.logical_not(), 0).max().item<double>() : 0;
}

}  // namespace

std::vector<double> differences(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected) {
  std::vector<double> all(expected.size(), 0);
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const auto &a = got[i], &b = expected[i];
    if (a.defined() && b.defined() && a.sizes() == b.sizes() && a.numel() > 0 && a.is_floating_point()) all[i] = largest_difference(a, b);
  }
  return all;
}

std::optional<Disagreement> first_disagreement(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                                               const std::vector<double>& allowed) {
  if (got.size() != expected.size()) return Disagreement{std::min(got.size(), expected.size()), std::numeric_limits<double>::infinity(), 0};
  double overall = 0;
  for (const auto& tensor : expected)
    if (tensor.defined() && tensor.is_floating_point()) overall = std::max(overall, scale_of(tensor));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto &a = got[i], &b = expected[i];
    if (a.defined() != b.defined() || (a.defined() && a.sizes() != b.sizes())) return Disagreement{i, std::numeric_limits<double>::infinity(), 0};
    if (!a.defined() || a.numel() == 0 || a.is_complex()) continue;
    const double scale = scale_of(b);
    if (!a.is_floating_point()) {
      if (!a.equal(b)) return Disagreement{i, (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>(), scale};
      continue;
    }
    const bool same_kind = at::isfinite(a).equal(at::isfinite(b));
    const double largest = largest_difference(a, b);
    const double bound = std::max(relative_tolerance(a.scalar_type()) * std::max(scale, 1e-2 * overall) + std::numeric_limits<float>::min(),
                                  i < allowed.size() ? allowed[i] : 0.0);
    if (!same_kind || !(largest <= bound)) return Disagreement{i, largest, scale};
  }
  return std::nullopt;
}

}  // namespace hfta::train
