#pragma once

#include <cstdint>

#include "hfta/ops/wide_vectors.h"

// Sums for kernels that are compiled for several vector widths: inlined into the versions, with partial sums side by side, which a compiler
// may not make of a plain loop.

namespace hfta::ops {

template <typename T>
HFTA_INLINE T total_of(const typename Wide<T>::Vector& parts) {
  T total = 0;
  for (std::int64_t k = 0; k < Wide<T>::kSize; ++k) total += parts[k];
  return total;
}

template <typename T>
HFTA_INLINE T sum_of(const T* x, std::int64_t n) {
  typename Wide<T>::Vector parts = {}, values;
  std::int64_t i = 0;
  for (; i + Wide<T>::kSize <= n; i += Wide<T>::kSize) {
    __builtin_memcpy(&values, x + i, sizeof values);
    parts += values;
  }
  T total = total_of<T>(parts);
  for (; i < n; ++i) total += x[i];
  return total;
}

/// Sum of `(x - mean)^2`.
template <typename T>
HFTA_INLINE T squares_of(const T* x, std::int64_t n, T mean) {
  typename Wide<T>::Vector parts = {}, values;
  std::int64_t i = 0;
  for (; i + Wide<T>::kSize <= n; i += Wide<T>::kSize) {
    __builtin_memcpy(&values, x + i, sizeof values);
    values -= mean;
    parts += values * values;
  }
  T total = total_of<T>(parts);
  for (; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

/// Sum of `(x - mean) * y`.
template <typename T>
HFTA_INLINE T products_of(const T* x, const T* y, std::int64_t n, T mean) {
  typename Wide<T>::Vector parts = {}, values, others;
  std::int64_t i = 0;
  for (; i + Wide<T>::kSize <= n; i += Wide<T>::kSize) {
    __builtin_memcpy(&values, x + i, sizeof values);
    __builtin_memcpy(&others, y + i, sizeof others);
    parts += (values - mean) * others;
  }
  T total = total_of<T>(parts);
  for (; i < n; ++i) total += (x[i] - mean) * y[i];
  return total;
}

}  // namespace hfta::ops
