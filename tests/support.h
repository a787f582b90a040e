#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string>

namespace hfta::test {

/// Where the tests run: `HFTA_TEST_DEVICE`, by default the CPU.
inline torch::Device device() {
  const char* name = std::getenv("HFTA_TEST_DEVICE");
  return torch::Device(name && *name ? name : "cpu");
}

struct Tolerance {
  double relative, absolute;
};

/// One step from equal state: float64 1e-10, float32 1e-4 (absolute 1e-6); `factor` 10 after 20 steps.
inline Tolerance tolerance(torch::ScalarType type, double factor = 1) {
  if (type == torch::kDouble) return {1e-10 * factor, 1e-12 * factor};
  if (type == torch::kFloat) return {1e-4 * factor, 1e-6 * factor};
  if (type == torch::kBFloat16 || type == torch::kHalf) return {2e-2 * factor, 2e-2 * factor};
  return {0, 0};
}

/// Equal shapes and every element within tolerance; NaN equals NaN. Prints the shapes or the largest difference.
/// `scale`: the absolute tolerance is multiplied by it (gradients are judged at their layer's scale).
inline ::testing::AssertionResult close(const torch::Tensor& got, const torch::Tensor& expected, Tolerance t, double scale = 1) {
  if (!got.defined() || !expected.defined())
    return got.defined() == expected.defined() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << "one of the two is undefined";
  if (got.sizes() != expected.sizes())
    return ::testing::AssertionFailure() << "shape " << got.sizes() << ", expected " << expected.sizes();
  if (got.scalar_type() != expected.scalar_type())
    return ::testing::AssertionFailure() << "dtype " << got.scalar_type() << ", expected " << expected.scalar_type();
  const auto g = got.detach().to(torch::kCPU, torch::kDouble), e = expected.detach().to(torch::kCPU, torch::kDouble);
  if (torch::allclose(g, e, t.relative, t.absolute * scale, /*equal_nan=*/true)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "largest difference " << (g - e).abs().max().item<double>() << " at values up to "
                                       << e.abs().max().item<double>();
}
inline ::testing::AssertionResult close(const torch::Tensor& got, const torch::Tensor& expected) {
  return close(got, expected, tolerance(expected.defined() ? expected.scalar_type() : torch::kFloat));
}

/// Bit for bit equal, NaN included.
inline ::testing::AssertionResult same_bits(const torch::Tensor& got, const torch::Tensor& expected) {
  return close(got, expected, {0, 0});
}

}  // namespace hfta::test
