#pragma once

#include <immintrin.h>

// Floats as sums of three bfloat16 numbers, exactly. For sources of x86-64 only.

#define HFTA_TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))
#define HFTA_TILES_INLINE HFTA_TILES inline __attribute__((always_inline))

namespace hfta::ops {

/// The parts of 32 numbers, largest first.
struct Parts {
  __m512i part[3];
};

/// The high halves of both vectors' numbers: one vector's behind the other's, or in pairs.
template <bool InPairs>
HFTA_TILES_INLINE __m512i halves(__m512i low, __m512i high) {
  if constexpr (InPairs) return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(low, 16), high);
  const __m512i odd = _mm512_add_epi16(_mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
                                       _mm512_set1_epi16(1));
  return _mm512_permutex2var_epi16(low, odd, high);
}

/// To the nearest bfloat16, which is the high half.
HFTA_TILES_INLINE __m512i rounded(__m512 x) { return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)); }
HFTA_TILES_INLINE __m512 without(__m512 x, __m512i part) { return _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_and_si512(part, _mm512_set1_epi32(-0x10000)))); }

/// @param[in,out] check becomes no number where a part is none: what is infinite or no number leaves such a rest, and so does what is rounded to infinity.
template <bool InPairs>
HFTA_TILES_INLINE Parts split(__m512 low, __m512 high, __m512& check) {
  Parts parts;
  for (int p = 0; p < 2; ++p) {
    const __m512i of_low = rounded(low), of_high = rounded(high);
    parts.part[p] = halves<InPairs>(of_low, of_high);
    low = without(low, of_low), high = without(high, of_high);
  }
  parts.part[2] = halves<InPairs>(_mm512_castps_si512(low), _mm512_castps_si512(high));  // eight bits or less are left
  check = _mm512_add_ps(check, _mm512_add_ps(low, high));
  return parts;
}

}  // namespace hfta::ops
