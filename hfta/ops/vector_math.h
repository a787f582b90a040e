#pragma once

#include <cstdint>

#include "hfta/ops/vector_sums.h"

// Exponential and logarithm of vectors: no branches, no calls. Errors of about one unit in the last place.

namespace hfta::ops {

template <typename T>
struct ExpParts;
template <>
struct ExpParts<float> {
  typedef std::int32_t Bits __attribute__((vector_size(64)));  // NOLINT(modernize-use-using)
  static constexpr float kLowest = -87.33654F, kRounder = 12582912.0F, kLog2High = 0.693359375F, kLog2Low = -2.12194440e-4F;
  static constexpr int kMantissa = 23, kBias = 127, kTerms = 8, kLogTerms = 6;
};
template <>
struct ExpParts<double> {
  typedef std::int64_t Bits __attribute__((vector_size(64)));  // NOLINT(modernize-use-using)
  static constexpr double kLowest = -708.3964185322641, kRounder = 6755399441055744.0, kLog2High = 6.93147180369123816490e-01,
                          kLog2Low = 1.90821492927058770002e-10;
  static constexpr int kMantissa = 52, kBias = 1023, kTerms = 14, kLogTerms = 13;
};

template <typename T>
HFTA_INLINE typename Wide<T>::Vector larger(const typename Wide<T>::Vector& x, const typename Wide<T>::Vector& than) {
  return x > than ? x : than;
}

/// `exp(x)` for x <= 0; 0 below the smallest normal number, NaN for NaN.
template <typename T>
HFTA_INLINE typename Wide<T>::Vector exp_of_negative(const typename Wide<T>::Vector& x) {
  using P = ExpParts<T>;
  using Vector = typename Wide<T>::Vector;
  const Vector lowest = Vector{} + P::kLowest;
  const Vector kept = x < lowest ? lowest : x;  // NaN stays
  const Vector shifted = kept * T(1.44269504088896340736) + P::kRounder;
  const Vector k = shifted - P::kRounder;
  const Vector r = (kept - k * P::kLog2High) - k * P::kLog2Low;
  Vector sum = Vector{} + T(1);
#pragma GCC unroll 16
  for (int i = P::kTerms; i > 0; --i) sum = sum * (r * (T(1) / static_cast<T>(i))) + T(1);
  // The low bits of `shifted` are k.
  const auto scale = (reinterpret_cast<typename P::Bits>(shifted) + P::kBias) << P::kMantissa;
  const Vector result = sum * reinterpret_cast<Vector>(scale);
  return x < lowest ? Vector{} : result;
}

/// `log(x)` for 1 <= x < infinity, NaN for NaN.
template <typename T>
HFTA_INLINE typename Wide<T>::Vector log_of_sum(const typename Wide<T>::Vector& x) {
  using P = ExpParts<T>;
  using Vector = typename Wide<T>::Vector;
  const auto bits = reinterpret_cast<typename P::Bits>(x);
  const auto half = reinterpret_cast<typename P::Bits>(Vector{} + T(0.70710678118654752440));
  const auto exponent = (bits - half) >> P::kMantissa;
  const auto m = reinterpret_cast<Vector>(bits - (exponent << P::kMantissa));  // in [sqrt(1/2), sqrt(2))
  const Vector s = (m - T(1)) / (m + T(1)), squared = s * s;
  Vector sum{};
#pragma GCC unroll 16
  for (int i = P::kLogTerms; i > 0; --i) sum = sum * squared + T(2) / static_cast<T>(2 * i - 1);
  const Vector e = __builtin_convertvector(exponent, Vector);
  const Vector result = e * P::kLog2High + (s * sum + e * P::kLog2Low);
  return x == x ? result : x;
}

}  // namespace hfta::ops
