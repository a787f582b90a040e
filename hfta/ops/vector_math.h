#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hfta/ops/vector_sums.h"

// Exponential and logarithm that a compiler vectorizes when they are inlined into a loop: no branches, no calls. Errors of about one unit
// in the last place.

namespace hfta::ops {

template <typename T>
struct ExpParts;
template <>
struct ExpParts<float> {
  using Bits = std::int32_t;
  static constexpr float kLowest = -87.33654F, kRounder = 12582912.0F, kLog2High = 0.693359375F, kLog2Low = -2.12194440e-4F;
  static constexpr int kMantissa = 23, kBias = 127, kTerms = 8, kLogTerms = 6;
};
template <>
struct ExpParts<double> {
  using Bits = std::int64_t;
  static constexpr double kLowest = -708.3964185322641, kRounder = 6755399441055744.0, kLog2High = 6.93147180369123816490e-01,
                          kLog2Low = 1.90821492927058770002e-10;
  static constexpr int kMantissa = 52, kBias = 1023, kTerms = 14, kLogTerms = 13;
};

/// `exp(x)` for x <= 0; 0 below the smallest normal number, NaN for NaN.
template <typename T>
HFTA_INLINE T exp_of_negative(T x) {
  using P = ExpParts<T>;
  const T kept = x < P::kLowest ? P::kLowest : x;  // NaN stays
  const T shifted = kept * T(1.44269504088896340736) + P::kRounder;
  const T k = shifted - P::kRounder;
  const T r = (kept - k * P::kLog2High) - k * P::kLog2Low;
  T sum = 1;
  for (int i = P::kTerms; i > 0; --i) sum = sum * r * (T(1) / static_cast<T>(i)) + 1;
  // The low bits of `shifted` are k.
  const auto scale = (std::bit_cast<typename P::Bits>(shifted) + P::kBias) << P::kMantissa;
  const T result = sum * std::bit_cast<T>(static_cast<typename P::Bits>(scale));
  return x < P::kLowest ? T(0) : result;
}

/// `log(x)` for 1 <= x < infinity, NaN for NaN.
template <typename T>
HFTA_INLINE T log_of_sum(T x) {
  using P = ExpParts<T>;
  using Bits = typename P::Bits;
  const auto bits = std::bit_cast<Bits>(x);
  const Bits half = std::bit_cast<Bits>(T(0.70710678118654752440));
  const Bits exponent = (bits - half) >> P::kMantissa;
  const T m = std::bit_cast<T>(static_cast<Bits>(bits - (exponent << P::kMantissa)));  // in [sqrt(1/2), sqrt(2))
  const T s = (m - 1) / (m + 1), squared = s * s;
  T sum = 0;
  for (int i = P::kLogTerms; i > 0; --i) sum = sum * squared + T(2) / static_cast<T>(2 * i - 1);
  const T e = static_cast<T>(exponent);
  const T result = e * P::kLog2High + (s * sum + e * P::kLog2Low);
  return x == x ? result : x;
}

}  // namespace hfta::ops
