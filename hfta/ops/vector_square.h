#pragma once

#include <utility>

#include "hfta/ops/wide_vectors.h"

namespace hfta::ops {

/// Exchanges, between rows `Step` apart, the columns that are `Step` apart.
template <typename T, int Step, int... J>
HFTA_INLINE void exchange(typename Wide<T>::Vector& a, typename Wide<T>::Vector& b, std::integer_sequence<int, J...>) {
  constexpr int N = Wide<T>::kSize;
  const auto upper = __builtin_shufflevector(a, b, ((J & Step) ? N + J - Step : J)...);
  const auto lower = __builtin_shufflevector(a, b, ((J & Step) ? N + J : J + Step)...);
  a = upper, b = lower;
}

/// Turns a square of vectors: rows become columns.
template <typename T, int Step = Wide<T>::kSize / 2>
HFTA_INLINE void turn_square(typename Wide<T>::Vector* square) {
#pragma GCC unroll 16
  for (int i = 0; i < Wide<T>::kSize; ++i)
    if (!(i & Step)) exchange<T, Step>(square[i], square[i + Step], std::make_integer_sequence<int, Wide<T>::kSize>());
  if constexpr (Step > 1) turn_square<T, Step / 2>(square);
}

}  // namespace hfta::ops
