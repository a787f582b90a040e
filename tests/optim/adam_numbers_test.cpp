#include <torch/torch.h>

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "hfta/optim/kernels.h"

namespace hfta::test {
namespace adam_numbers_test {

using optim::LaneNumbers;

/// A row of Adam's numbers.
struct Row {
  torch::Tensor parameter, gradient, first, second;

  Row copy() const { return {parameter.clone(), gradient.clone(), first.clone(), second.clone()}; }

  void update_by_kernel(const LaneNumbers& numbers) {
    optim::Rows rows;
    rows.lanes = 1;
    rows.size = parameter.numel();
    rows.type = parameter.scalar_type();
    rows.parameter = parameter.mutable_data_ptr();
    rows.gradient = gradient.const_data_ptr();
    rows.state = {first.mutable_data_ptr(), second.mutable_data_ptr(), nullptr};
    rows.parameter_stride = rows.gradient_stride = rows.state_stride = rows.size;
    optim::adam_rows(rows, &numbers);
  }

  /// In LibTorch's operators, as `torch::optim` does it.
  void update_by_torch(const LaneNumbers& n) {
    auto by = gradient * n.scale;
    if (n.decay != 0) by = by.add(parameter, n.decay);
    if (n.shrink != 1) parameter.mul_(n.shrink);
    first.mul_(n.keep).add_(by, n.add);
    second.mul_(n.keep_square).addcmul_(by, by, n.add_square);
    parameter.addcdiv_(first, second.sqrt().div_(n.root_divisor).add_(n.eps), n.rate);
  }
};

/// Bits, but for those of what is no number.
void expect_same(const torch::Tensor& got, const torch::Tensor& expected, const char* what) {
  const auto differ = got.view(torch::kInt).ne(expected.view(torch::kInt)).logical_and_(got.isnan().logical_and(expected.isnan()).logical_not());
  if (!differ.any().item<bool>()) return;
  const auto at = differ.nonzero()[0].item<std::int64_t>();
  FAIL() << what << " of " << differ.sum().item<std::int64_t>() << " elements differ, first " << at << ": " << got[at].item<float>() << " for " << expected[at].item<float>();
}

void expect_same_update(const Row& row, const LaneNumbers& numbers) {
  auto ours = row.copy(), theirs = row.copy();
  ours.update_by_kernel(numbers);
  theirs.update_by_torch(numbers);
  expect_same(ours.first, theirs.first, "first moments");
  expect_same(ours.second, theirs.second, "second moments");
  expect_same(ours.parameter, theirs.parameter, "parameters");
}

/// What is added to a parameter of zero is one over the root.
TEST(AdamNumbersTest, RootsAreLibTorchsForNumbersOfAllSizes) {
  const LaneNumbers only_divides{.rate = -1, .keep = 1, .add = 0, .keep_square = 1, .add_square = 0};
  constexpr std::int32_t kStride = 61, kEnd = std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity()), kPart = 1 << 20;
  for (std::int64_t from = 1; from <= kEnd; from += std::int64_t{kPart} * kStride) {
    const auto bits = torch::arange(from, std::min<std::int64_t>(from + std::int64_t{kPart} * kStride, kEnd + std::int64_t{1}), kStride, torch::kInt);
    const auto second = bits.view(torch::kFloat), zero = torch::zeros_like(second);
    expect_same_update({zero, zero, torch::ones_like(second), second}, only_divides);
    if (HasFatalFailure()) return;
  }
}

TEST(AdamNumbersTest, RareNumbersBesideEachOtherKeepLibTorchsBits) {
  const float infinite = std::numeric_limits<float>::infinity(), none = std::numeric_limits<float>::quiet_NaN();
  const auto grid = torch::meshgrid({torch::tensor({0.0F, -0.0F, 1e-42F, 3e-20F, -0.25F, 1e30F}),                                                     // parameter
                                     torch::tensor({0.0F, -0.0F, 1e-44F, -1e-30F, 1e-20F, -1e-8F, 0.5F, 1e12F, -1e25F, infinite, none}),              // gradient
                                     torch::tensor({0.0F, -0.0F, 1e-45F, -3e-41F, 1.2e-38F, -1e-36F, 1e-10F, -0.125F, 1e20F}),                        // first moment
                                     torch::tensor({0.0F, 1e-45F, 1e-39F, 2e-38F, 1e-30F, 8e-22F, 9e-22F, 1e-8F, 1.0F, 1e30F, 1.3e30F, 1e36F, infinite})}, "ij");
  const auto all = [&](std::size_t k) { return grid[k].flatten().contiguous(); };
  const Row row{all(0), all(1), all(2), all(3)};
  const LaneNumbers plain{.rate = -1e-3, .keep = 0.9, .add = 0.1, .keep_square = 0.999, .add_square = 0.001, .root_divisor = 0.3, .eps = 1e-8};
  auto maximizing = plain, decaying = plain, shrinking = plain, without_eps = plain;
  maximizing.scale = -1, decaying.decay = 0.01, shrinking.shrink = 0.99, without_eps.eps = 0;
  for (const auto& numbers : {plain, maximizing, decaying, shrinking, without_eps}) {
    expect_same_update(row, numbers);
    // Neighbours of another kind, and ends of a row that fill no vector.
    const auto mixed = torch::randperm(row.parameter.numel());
    const auto part = [&](const torch::Tensor& of, std::int64_t size) { return of.index_select(0, mixed.narrow(0, 0, size)); };
    for (const std::int64_t size : {1, 15, 16, 17, 100, 5000})
      expect_same_update({part(row.parameter, size), part(row.gradient, size), part(row.first, size), part(row.second, size)}, numbers);
  }
}

}  // namespace adam_numbers_test
}  // namespace hfta::test
